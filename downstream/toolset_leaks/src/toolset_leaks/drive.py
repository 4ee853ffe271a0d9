"""Run an agent on a scripted model that calls each of its tools."""

from __future__ import annotations

import asyncio
import contextvars
import fnmatch
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import ToolDefinition

from . import rules
from .arguments import Arguments, ArgumentsError
from .report import WAYS_ON, Report, ToolsetLeakError, listed
from .watch import Watch


def find_leaks(
    agent: Agent[Any, Any],
    *,
    deps: Any = None,
    make_deps: Callable[[], Any] | None = None,
    arguments: Mapping[str, Any] | None = None,
    skip: Sequence[str] = (),
    shared: Sequence[str] = (),
    rounds: int = 2,
    seed: int = 0,
    timeout: float = 30,
) -> Report:
    """Run an agent on a scripted model, and find the state that one run leaves behind for the next.

    Each tool is really called: alone in a run of its own, once for each round, and then all of them in one run. The
    agent's own model is never asked. `toolset-leaks MODULE:AGENT` does the same in another process, which can't reach the network.

    Args:
        agent: The agent.
        deps: The deps of all runs. What a run leaves behind in them is found, too.
        make_deps: Makes deps of its own for each run, in place of `deps`.
        arguments: The arguments of tools, by the tools' names: a dict, or a list of dicts for one call after another. What a
            tool requires beside them is made from its schema.
        skip: The names of tools that must not be called; `*` stands for anything.
        shared: The names of what runs share on purpose, like `TodoToolset.todos`; `*` stands for anything.
        rounds: How often each tool is called, with other arguments each time.
        seed: The same seed makes the same arguments.
        timeout: How many seconds a run may take.

    Returns:
        What was found. If no call of a tool succeeded, it says so in `undecided`.

    Raises:
        ArgumentsError: `arguments` is about tools that the agent doesn't have.
    """
    driver = _Driver(agent, make_deps or (lambda: deps), skip, Arguments(seed, arguments or {}), timeout)
    with Watch(shared=shared) as watch:
        _in_thread(lambda: driver.drive(rounds))
    watch.report.called = sorted(driver.tools.keys() - driver.not_called)
    watch.report.not_called = sorted(driver.not_called)
    watch.report.unproven = {name: driver.errors[name] for name in sorted(driver.errors.keys() - driver.succeeded)}
    if not watch.report.leaks and not driver.succeeded:
        watch.report.undecided = driver.why_undecided()
    return watch.report


def assert_no_leak(agent: Agent[Any, Any], **options: Any) -> None:
    """Fail if runs of an agent leave state behind that later runs can see, or if no call of one of its tools succeeded.

    Args:
        agent: The agent.
        options: Those of `find_leaks()`.

    Raises:
        ToolsetLeakError: They do. It's an `AssertionError`, and says what to write instead.
    """
    report = find_leaks(agent, **options)
    if report.leaks or report.undecided or report.unproven:
        raise ToolsetLeakError(report)


def _in_thread(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it in an event loop of its own, even if the caller is inside of one."""
    errors: list[BaseException] = []

    def target() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:  # noqa: BLE001 - it's raised in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(target,), name='toolset-leaks')
    thread.start()
    thread.join()
    for error in errors:
        raise error


@dataclass
class _Driver:
    """Runs an agent, and says in place of its model which tools to call."""

    agent: Agent[Any, Any]
    make_deps: Callable[[], Any]
    skip: Sequence[str]
    arguments: Arguments
    timeout: float
    not_called: dict[str, None] = field(default_factory=dict[str, None])
    succeeded: set[str] = field(default_factory=set[str])
    errors: dict[str, str] = field(default_factory=dict[str, str])
    error: str = ''
    tools: dict[str, ToolDefinition] = field(default_factory=dict[str, ToolDefinition])
    script: list[str] = field(default_factory=list[str])
    number: int = 0
    last: ToolCallPart | None = None

    async def drive(self, rounds: int) -> None:
        """Run the agent with each tool alone, then with all, then with none."""
        await self.run('Which tools are there?')
        for number in range(rounds):
            self.number = number
            for name in self.names():
                await self.run(f'Call {name}', name)
        self.number = rounds + rounds % 2
        await self.run('Call all tools', *self.names())
        await self.run('Call no tool')
        if unknown := sorted(self.arguments.given.keys() - self.tools.keys()):
            raise ArgumentsError(
                f'There are arguments for {listed(unknown)}, and the agent has no such tool. It has '
                f'{listed(sorted(self.tools)) or "none"}.'
            )

    def why_undecided(self) -> str:
        """Say why nothing is known although nothing was found."""
        if not self.errors and (self.error or not self.tools):
            why = f'no run got as far as a tool: {self.error}' if self.error else 'the agent offered no tool'
            return (
                f'Nothing is known: {why}. If it needs deps, name them with `--deps MODULE:NAME`, or in Python with '
                '`make_deps=`.'
            )
        if not self.errors:
            return 'Nothing is known: no tool was called. Leave out less with `--skip`, or in Python with `skip=`.'
        name, error = next(iter(self.errors.items()))
        return f'Nothing is known: no call of a tool succeeded. The first error, of `{name}`: {error}. {WAYS_ON}'

    def names(self) -> list[str]:
        """Return the names of the tools that may be called, those included that were added since."""
        self.not_called |= dict.fromkeys(
            name for name in self.tools if any(fnmatch.fnmatchcase(name, pattern) for pattern in self.skip)
        )
        return [name for name in self.tools if name not in self.not_called]

    async def run(self, prompt: str, *script: str) -> None:
        """Run the agent once. How a run fails is in the report; it may leave something behind all the same."""
        self.script, self.last = list(script), None
        options: dict[str, Any] = {'model': FunctionModel(self.respond), 'deps': self.make_deps()}
        options['output_type'] = [str, DeferredToolRequests]
        try:
            try:
                result = await self.once(prompt, options)
            except UserError as error:
                if 'output' not in str(error):
                    raise
                del options['output_type']  # not possible with output validators
                self.script = list(script)
                result = await self.once(prompt, options)
            if isinstance(result.output, DeferredToolRequests):
                answers = DeferredToolResults(
                    approvals={call.tool_call_id: True for call in result.output.approvals},
                    calls={call.tool_call_id: 'done' for call in result.output.calls},
                )
                options |= {'message_history': result.all_messages(), 'deferred_tool_results': answers}
                await self.once(None, options)
        except Exception as error:  # noqa: BLE001 - it's in the report
            words = _words(f'{type(error).__name__}: {error}')
            self.error = self.error or words
            if self.last and self.last.tool_name in self.tools:
                self.errors.setdefault(self.last.tool_name, words)

    async def once(self, prompt: str | None, options: dict[str, Any]) -> Any:
        """Run the agent with one prompt, as long as it may take."""
        return await asyncio.wait_for(self.agent.run(prompt, **options), self.timeout)

    def respond(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """Respond with the next tool call of the script, or end the run."""
        self.tools |= {tool.name: tool for tool in info.function_tools}
        for part in messages[-1].parts:
            problem = rules.refused(part) if isinstance(part, ToolReturnPart) else getattr(part, 'content', None)
            if isinstance(part, ToolReturnPart) and not problem:
                self.succeeded.add(part.tool_name)
            elif (name := getattr(part, 'tool_name', None)) in self.tools:
                self.errors.setdefault(name, _words(problem))
            if part.part_kind == 'retry-prompt' or getattr(part, 'outcome', '') == 'retried':
                if self.last and self.last.tool_name == getattr(part, 'tool_name', None):
                    # A model would try again; once is enough.
                    again, self.last = self.last, None
                    return ModelResponse(parts=[ToolCallPart(again.tool_name, again.args)])
            elif isinstance(part, ToolReturnPart):
                self.arguments.returned(part.content)
        available = {tool.name: tool for tool in info.function_tools}
        while self.script:
            name = self.script.pop(0)
            if name in available and (call := self.call(available[name])):
                return ModelResponse(parts=[call])
        if not info.allow_text_output and info.output_tools and (call := self.call(info.output_tools[0])):
            return ModelResponse(parts=[call])
        return ModelResponse(parts=[TextPart('done')])

    def call(self, tool: ToolDefinition) -> ToolCallPart | None:
        """Make a call of a tool, if arguments can be made from its schema."""
        try:
            arguments = self.arguments.make(
                tool.name, tool.parameters_json_schema, reuse=self.number > 0, all_parameters=self.number % 2 == 0
            )
        except ValueError:
            self.not_called[tool.name] = None
            return None
        self.last = ToolCallPart(tool.name, arguments)
        return self.last


def _words(error: Any) -> str:
    """Return an error in one line that isn't too long, without a full stop."""
    text = ' '.join(str(error).split())
    return (text if len(text) <= 300 else f'{text[:297]}...').rstrip('.')
