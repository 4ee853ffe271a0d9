"""Toolsets with hooks, errors as values, approvals and sessions, for agents that are built once."""

from . import _fork as _fork
from .context import AgentContext, ResumableState
from .hooks import (
    CallMetadata,
    ExitError,
    GlobalHooks,
    GlobalPostHookFunc,
    GlobalPreHookFunc,
    PostHookFunc,
    PreHookFunc,
)
from .store import Session, SessionBusyError, SessionStore, StaleSessionError
from .tools import BaseTool
from .toolset import BaseToolset, HookableToolsetTool, Toolset, ToolsetView

__all__ = ['AgentContext', 'ResumableState']
__all__ += [
    'CallMetadata',
    'ExitError',
    'GlobalHooks',
    'GlobalPostHookFunc',
    'GlobalPreHookFunc',
    'PostHookFunc',
    'PreHookFunc',
]
__all__ += ['Session', 'SessionBusyError', 'SessionStore', 'StaleSessionError']
__all__ += ['BaseTool', 'BaseToolset', 'HookableToolsetTool', 'Toolset', 'ToolsetView']
