"""A runtime for projects of agents and toolsets, in which every agent is built once."""

from __future__ import annotations

try:
    from pydantic_ai.toolsets import ToolsetScope  # noqa: F401  # pyright: ignore[reportUnusedImport]
except ImportError as error:  # the base, which has none
    raise ImportError(
        'toolset_first needs the fork of pydantic-ai with safe toolsets, and this is another one. '
        'Pin the fork in place of `pydantic-ai-slim`, as the README of toolset_first shows.'
    ) from error

from toolset_first.agents import (
    CallEvent,
    CallFrame,
    CallRuntime,
    DepthError,
    UnknownAgentError,
    agent_as_toolset,
)
from toolset_first.approvals import Answer, ApprovalDenied, Approvals, Question
from toolset_first.contracts import AgentSpec, EntrySpec, ToolsetBuildContext, ToolsetSpec, WorkerArgs
from toolset_first.errors import ExitError, ToolsetFirstError
from toolset_first.inputs import InputError, normalize_input
from toolset_first.project import Project, load_project
from toolset_first.rules import ApprovalError
from toolset_first.runtime import Runtime
from toolset_first.scope import CallScope, EntryError, ScopeBusyError, ScopeClosedError
from toolset_first.tools import files, shell
from toolset_first.turn import LoggedMessage
from toolset_first.wiring import IsolationError
from toolset_first.worker_file import ProjectError

__all__ = (
    'AgentSpec',
    'Answer',
    'ApprovalDenied',
    'ApprovalError',
    'Approvals',
    'CallEvent',
    'CallFrame',
    'CallRuntime',
    'CallScope',
    'DepthError',
    'EntryError',
    'EntrySpec',
    'ExitError',
    'InputError',
    'IsolationError',
    'LoggedMessage',
    'Project',
    'ProjectError',
    'Question',
    'Runtime',
    'ScopeBusyError',
    'ScopeClosedError',
    'ToolsetBuildContext',
    'ToolsetFirstError',
    'ToolsetSpec',
    'UnknownAgentError',
    'WorkerArgs',
    'agent_as_toolset',
    'files',
    'load_project',
    'normalize_input',
    'shell',
)
