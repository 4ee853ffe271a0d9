"""What the census drives: for each package, agents as its own documentation builds them.

Each function returns an agent, and is decorated with the package it's about and the words for what it drives. Its imports are
inside, since each package has an environment of its own.
"""

# Nothing is known of the types of packages that aren't there.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

with contextlib.suppress(ImportError):  # the census itself runs where it isn't installed
    from pydantic_ai import RunContext


@dataclass(frozen=True)
class Subject:
    """An agent that is driven."""

    package: str
    """The name on the index."""
    name: str
    """The function of this module that makes the agent."""
    words: str
    """What is driven."""
    deps: str | None = None
    """The function of this module that makes the deps."""
    arguments: dict[str, Any] | None = None
    """Arguments that the tools accept, where made-up ones are refused."""
    needs: tuple[str, ...] = ()
    """What is installed besides."""


SUBJECTS: list[Subject] = []


def subject(package: str, words: str, **options: Any) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Add a function to the subjects."""

    def add(function: Callable[[], Any]) -> Callable[[], Any]:
        SUBJECTS.append(Subject(package, function.__name__, words, **options))
        return function

    return add


def agent(*toolsets: Any, **options: Any) -> Any:
    """Make an agent whose own model is never asked."""
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    return Agent(TestModel(), name='census', toolsets=toolsets, **options)


@subject('pydantic-ai-todo', '`create_todo_toolset(enable_subtasks=True)`')
def todo_toolset() -> Any:
    from pydantic_ai_todo import create_todo_toolset

    return agent(create_todo_toolset(enable_subtasks=True))


@subject('pydantic-ai-todo', '`TodoCapability()`')
def todo_capability() -> Any:
    from pydantic_ai_todo import TodoCapability

    return agent(capabilities=[TodoCapability()])


@subject('pydantic-ai-backend', '`ConsoleCapability(include_execute=False)` on a `StateWorkspace()`', needs=('httpx',))
def backend() -> Any:
    from pydantic_ai_backends import ConsoleCapability
    from pydantic_ai_backends.workspaces import StateWorkspace

    return agent(capabilities=[StateWorkspace(), ConsoleCapability(include_execute=False)])


@subject('pydantic-ai-skills', '`SkillsCapability()` over a folder with a skill')
def skills() -> Any:
    from pydantic_ai_skills import SkillsCapability

    skill = Path('skills/greeting')
    (skill / 'references').mkdir(parents=True, exist_ok=True)
    (skill / 'SKILL.md').write_text('---\nname: greeting\ndescription: Greets people\n---\nSay hello.\n')
    (skill / 'references' / 'words.md').write_text('Hello, hi\n')
    return agent(capabilities=[SkillsCapability('skills')])


@subject('subagents-pydantic-ai', '`create_subagent_toolset()` with one sub-agent')
def subagents() -> Any:
    from pydantic_ai.models.test import TestModel
    from subagents_pydantic_ai import create_subagent_toolset

    helper: Any = {'name': 'helper', 'description': 'Helps', 'instructions': 'Help.', 'model': TestModel()}
    return agent(create_subagent_toolset(subagents=[helper], default_model=TestModel()), deps_type=object)


@subject(
    'pydantic-ai-shields', '`CostTracking()`, `ToolGuard()`, `PiiDetector()` and `SecretRedaction()` around one tool'
)
def shields() -> Any:
    from pydantic_ai_shields import CostTracking, PiiDetector, SecretRedaction, ToolGuard

    made = agent(capabilities=[CostTracking(), ToolGuard(), PiiDetector(), SecretRedaction()])
    made.tool_plain(_echo)
    return made


def _echo(text: str) -> str:
    return text


@subject('pydantic-ai-harness', '`Planning(enable_subtasks=True)`')
def harness_planning() -> Any:
    from pydantic_ai_harness import Planning

    return agent(capabilities=[Planning(enable_subtasks=True)])


@subject('pydantic-ai-harness', '`Memory()`')
def harness_memory() -> Any:
    from pydantic_ai_harness import Memory

    return agent(capabilities=[Memory()])


@subject('pydantic-ai-harness', '`FileSystem()` on a `LocalWorkspace()`')
def harness_files() -> Any:
    from pydantic_ai.capabilities import LocalWorkspace
    from pydantic_ai_harness import FileSystem

    return agent(capabilities=[LocalWorkspace('.'), FileSystem()])


@subject('pydantic-ai-harness', '`SubAgents()` with one sub-agent')
def harness_subagents() -> Any:
    from pydantic_ai_harness import SubAgent, SubAgents

    return agent(capabilities=[SubAgents(agents=[SubAgent(name='helper', description='Helps', agent=agent())])])


@subject('pydantic-deep', '`create_deep_agent()`', deps='deep_deps')
def deep() -> Any:
    from pydantic_ai.models.test import TestModel
    from pydantic_deep import create_deep_agent

    return create_deep_agent(TestModel(), summarization_model=TestModel())


def deep_deps() -> Any:
    from pydantic_deep import DeepAgentDeps

    return DeepAgentDeps()


@subject('summarization-pydantic-ai', '`ContextManagerCapability(include_compact_tool=True)`')
def summarization() -> Any:
    from pydantic_ai.models.test import TestModel
    from pydantic_ai_summarization.capability import ContextManagerCapability

    made = agent(capabilities=[ContextManagerCapability(summarization_model=TestModel(), include_compact_tool=True)])
    made.tool_plain(_echo)
    return made


@subject(
    'pydantic-ai-toolsets',
    'to-do, chain of thought, tree of thought, self-ask, beam search and reflection toolsets',
    needs=('pydantic-ai-slim<2',),
)
def reasoning() -> Any:
    import pydantic_ai_toolsets as package

    names = ('todo', 'cot', 'tot', 'self_ask', 'beam', 'reflection')
    made = [getattr(package, f'create_{name}_toolset')() for name in names]
    return agent(*(toolset.prefixed(name) for name, toolset in zip(names, made, strict=True)))


@subject('pydantic-ai-toolbox', '`MemoryToolset()`', needs=('pydantic-ai-toolbox[memory]',))
def toolbox_memory() -> Any:
    from pydantic_ai_toolbox.toolsets.memory import MemoryToolset

    return agent(MemoryToolset())


@subject('pydantic-ai-toolbox', '`FilesystemToolset(read_only=False)`')
def toolbox_files() -> Any:
    from pydantic_ai_toolbox.toolsets.filesystem import FilesystemToolset

    return agent(FilesystemToolset('.', read_only=False))


@subject('pydantic-ai-toolbox', '`PandasToolset()` with one table', needs=('pydantic-ai-toolbox[pandas]',))
def toolbox_pandas() -> Any:
    import pandas
    from pydantic_ai_toolbox.toolsets.pandas import PandasToolset

    return agent(PandasToolset({'sales': pandas.DataFrame({'city': ['Bonn', 'Oslo'], 'sum': [1, 2]})}))


@subject('pydantic-ai-filesystem-sandbox', '`FileSystemToolset()` with a folder that can be written to')
def filesystem_sandbox() -> Any:
    from pydantic_ai_filesystem_sandbox import FileSystemToolset, Mount, Sandbox, SandboxConfig

    mount = Mount(host_path=Path.cwd(), mount_point='/data', mode='rw')
    return agent(FileSystemToolset(Sandbox(SandboxConfig(mounts=[mount]))))


@subject('pydantic-ai-rlm', '`create_rlm_toolset()`', deps='rlm_deps')
def rlm() -> Any:
    from pydantic_ai_rlm import create_rlm_toolset

    return agent(create_rlm_toolset())


def rlm_deps() -> Any:
    from pydantic_ai_rlm import RLMDependencies

    return RLMDependencies(context={'users': ['Ann', 'Bob']})


@subject('pydantic-ai-just-bash', '`JustBash()` around one tool')
def just_bash() -> Any:
    from pydantic_ai_just_bash import JustBash

    made = agent(capabilities=[JustBash()])
    made.tool_plain(_echo)
    return made


@subject('database-pydantic-ai', '`create_database_toolset()` on SQLite', deps='database_deps')
def database() -> Any:
    from database_pydantic_ai import create_database_toolset

    return agent(create_database_toolset())


def database_deps() -> Any:
    from database_pydantic_ai import SQLDatabaseDeps, SQLiteDatabase

    with sqlite3.connect('shop.db') as connection:
        connection.execute('CREATE TABLE IF NOT EXISTS orders (item TEXT)')
    return SQLDatabaseDeps(database=SQLiteDatabase('shop.db'))


@subject('pydantic-ai-okf', '`OKFToolset()` over a folder with a concept')
def okf() -> Any:
    from pydantic_ai_okf import OKFToolset

    Path('knowledge').mkdir(exist_ok=True)
    Path('knowledge/index.md').write_text('---\ntitle: Words\n---\n- [Hello](hello.md)\n')
    Path('knowledge/hello.md').write_text('---\ntype: concept\ntitle: Hello\ndescription: A word\n---\nIt greets.\n')
    return agent(OKFToolset(bundles=['knowledge']))


@subject('pydantic-ai-provenance', '`ProvenanceCapability()` around one tool')
def provenance() -> Any:
    from pydantic_ai_provenance.capability import ProvenanceCapability

    made = agent(capabilities=[ProvenanceCapability(source_tools=['_echo'])])
    made.tool_plain(_echo)
    return made


@subject('pydantic-ai-tool-budget', '`budgeted(tool, limit=5)`')
def tool_budget() -> Any:
    from pydantic_ai_tool_budget import budgeted

    return agent(tools=[budgeted(_echo, limit=5)])


@subject(
    'pydantic-ai-middleware',
    '`MiddlewareToolset()` with `CostTrackingMiddleware()` around one tool',
    needs=('pydantic-ai-slim<2',),
)
def middleware() -> Any:
    from pydantic_ai import FunctionToolset
    from pydantic_ai_middleware import CostTrackingMiddleware, MiddlewareToolset

    return agent(MiddlewareToolset(FunctionToolset([_echo]), [CostTrackingMiddleware()]))


@subject(
    'haiku-skills',
    '`SkillsCapability(use_subagents=False)` with a skill that has a state',
    arguments={
        'query_skill': {'skill_name': 'notes'},
        'execute_skill_tool': [
            {'skill_name': 'notes', 'tool_name': '_remember', 'arguments': {'text': text}} for text in ('milk', 'bread')
        ],
    },
)
def haiku_skills() -> Any:
    from haiku.skills import Skill, SkillMetadata
    from haiku.skills.capability import SkillsCapability

    metadata = SkillMetadata(name='notes', description='Remembers notes')
    skill = Skill(
        metadata=metadata,
        instructions='Use `remember`.',
        tools=[_remember],
        state_type=_notes_state(),
        state_namespace='notes',
    )
    return agent(capabilities=[SkillsCapability(skills=[skill], use_subagents=False)])


def _notes_state() -> Any:
    from pydantic import Field, create_model

    return create_model('NotesState', notes=(list[str], Field(default_factory=list)))


def _remember(ctx: RunContext[Any], text: str) -> list[str]:
    """Remember a note, and return all."""
    ctx.deps.state.notes.append(text)
    return ctx.deps.state.notes


@subject('pydantic-ai-blocking-approval', '`ApprovalToolset()` around one tool, which is always approved')
def blocking_approval() -> Any:
    from pydantic_ai import FunctionToolset
    from pydantic_ai_blocking_approval import ApprovalDecision, ApprovalToolset

    def approve(request: Any) -> Any:
        return ApprovalDecision(approved=True)

    return agent(ApprovalToolset(FunctionToolset([_echo]), approve))


@subject('pydantic-ai-guardrails', '`RateLimit()`, `LimitCost()`, `RestrictTools()` and `DetectPII()` around one tool')
def guardrails() -> Any:
    from pydantic_ai_guardrails import DetectPII, LimitCost, RateLimit, RestrictTools

    limits = [RateLimit(max_requests=100), LimitCost(max_total_tokens=1_000_000), RestrictTools(blocked=['other'])]
    made = agent(capabilities=[*limits, DetectPII()])
    made.tool_plain(_echo)
    return made


@subject('pydantic-ai-error-recovery', '`ToolErrorRecovery(max_recoveries=2)` around a tool and one that fails')
def error_recovery() -> Any:
    from pydantic_ai_error_recovery import ToolErrorRecovery

    made = agent(capabilities=[ToolErrorRecovery(max_recoveries=2)])
    made.tool_plain(_echo)
    made.tool_plain(_fail)
    return made


def _fail(text: str) -> str:
    raise ConnectionError(f'no connection for {text}')


@subject('pydantic-ai-toolguard', '`ToolGuard()` with a rule that allows a hundred calls a minute')
def toolguard() -> Any:
    from pydantic_ai_toolguard import PermissionRule, RateLimitConfig, ToolGuard

    rule = PermissionRule(tool_pattern='*', rate_limit=RateLimitConfig(max=100, per='minute'))
    made = agent(capabilities=[ToolGuard(rules=[rule])])
    made.tool_plain(_echo)
    return made


@subject('pydantic-ai-acgs', '`ACGSCapability(on_review="deny")` around one tool')
def acgs() -> Any:
    from pydantic_ai_acgs import ACGSCapability

    made = agent(capabilities=[ACGSCapability(on_review='deny')])
    made.tool_plain(_echo)
    return made


@subject(
    'pydantic-ai-deepagents',
    '`create_deep_agent()`, with the `deps` that it returns in each run',
    deps='deepagents_deps',
)
def deepagents() -> Any:
    return _deepagents()[0]


def deepagents_deps() -> Any:
    return _deepagents()[1]


@functools.cache
def _deepagents() -> Any:
    from pydantic_ai_deepagents import create_deep_agent

    return create_deep_agent(model='test', enable_subagents=False)


@subject('vocabguard', '`VocabularyGuard()` around one tool')
def vocabguard() -> Any:
    from vocabguard import VocabularyGuard, Watchlist

    made = agent(capabilities=[VocabularyGuard(Watchlist(terms={'delve': 3.0}, threshold=1.0))])
    made.tool_plain(_echo)
    return made


@subject('ccs-pydantic-ai', '`CCSCapability()` around one tool')
def ccs() -> Any:
    from ccs_pydantic_ai import CCSCapability, CCSConfig

    made = agent(capabilities=[CCSCapability(CCSConfig(seed=b'0' * 32))])
    made.tool_plain(_echo)
    return made


@subject(
    'pydantic-ai-agentmesh',
    '`govern(policy)` around one tool, with the default of 10 calls',
    needs=('pydantic-ai-slim',),
)
def agentmesh() -> Any:
    from pydantic_ai_governance import GovernancePolicy, govern

    made = agent()
    made.tool_plain(govern(GovernancePolicy())(_echo))
    return made


@subject('pydantic-ai-escalation', '`EscalateOnOutputRetry()` with one level')
def escalation() -> Any:
    from pydantic_ai.models.test import TestModel
    from pydantic_ai_escalation import EscalateOnOutputRetry, Level

    made = agent(capabilities=[EscalateOnOutputRetry(levels=[Level(model=TestModel())])])
    made.tool_plain(_echo)
    return made


@subject('pydanticai-tealtiger', '`TealTigerGuard()` as the deps of all runs', deps='tealtiger_deps')
def tealtiger() -> Any:
    made = agent(deps_type=object)
    made.tool(_guarded)
    return made


def _guarded(ctx: RunContext[Any], text: str) -> str:
    ctx.deps.evaluate(tool='_guarded', args={'text': text})
    ctx.deps.post_call(tool_name='_guarded', result=text)
    return text


@functools.cache
def tealtiger_deps() -> Any:
    from pydanticai_tealtiger import TealTigerGuard

    return TealTigerGuard()
