"""Watch the runs of agents, and find what each leaves behind in what later ones use."""

from __future__ import annotations

import functools
import itertools
import re
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic_ai import Agent
from pydantic_ai.toolsets import AbstractToolset

from . import rules
from .report import Finding, Report, held_by, is_declared, listed, remedy, remedy_of_deps
from .snapshot import Change, Place, Snapshot, label

_DEPS = 'the deps'

_watches: list[Watch] = []
_original_iter: Any = None


@dataclass(eq=False)
class _Run:
    """A run that is watched."""

    number: int
    agent: Any
    title: str
    given: list[Any]
    """The toolsets given to this run only, and to none before."""
    snapshot: Snapshot
    roots: list[Any]
    beside: list[_Run] = field(default_factory=list['_Run'])
    """Runs that went on at the same time."""
    deps: Any = None
    """Its deps, if they are watched."""
    goes_on: bool = False
    """Whether it goes on with a conversation, whose earlier runs may have left something in the deps."""
    used: list[Any] = field(default_factory=list[Any])
    """What it works with in place of the agent's toolsets and capabilities."""

    def __str__(self) -> str:
        return self.title


@dataclass(eq=False)
class _Left:
    """Something that a run left behind, and that no later run of the agent has begun with yet."""

    change: Change
    finding: Finding
    owner: Callable[[], Any]
    """Returns the agent, or the toolset or the deps that were given to the run, unless they are gone."""
    in_deps: bool = False
    """Whether it's in the run's deps."""


@dataclass(eq=False)
class _Kept:
    """What a run left that looks harmless, unless the tools tell a later run of it."""

    change: Change
    finding: Finding
    begun: int
    """How many runs had begun by then."""
    inputs: rules.Inputs
    deps: set[Any]
    """What was in the deps of the run."""
    texts: set[str]


class Watch:
    """Watches all runs of all agents inside a `with` block, and says what they leave behind.

    Example:
        ```python
        with Watch() as watch:
            agent.run_sync('Add milk to my list')
        print(watch.report)
        ```

    Args:
        shared: The names of what runs share on purpose, like `TodoToolset.todos` or `tools.CACHE`; `*` stands for anything.
        max_objects: How many objects are looked into for each run at most.
        max_seconds: How long that may take for each run at most.
    """

    def __init__(
        self,
        *,
        shared: Sequence[str] = (),
        max_objects: int = 50_000,
        max_seconds: float = 2,
    ):
        self.shared = tuple(shared)
        self.max_objects = max_objects
        self.max_seconds = max_seconds
        self.report = Report()
        self.context = ''
        """Where the runs take place, such as the name of a test; it's added to their titles."""
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._active: list[_Run] = []
        self._known: dict[str, Finding] = {}
        self._left: list[_Left] = []
        self._kept: list[_Kept] = []
        self._begun = 0
        self._given: dict[int, Callable[[], Any]] = {}

    def __enter__(self) -> Self:
        global _original_iter
        rules.packages_on_pydantic_ai()  # It takes a while once, which isn't the time of a run.
        if not _watches:
            _original_iter = Agent.iter
            Agent.iter = _watched_iter(Agent.iter)
        _watches.append(self)
        return self

    def __exit__(self, *args: object) -> None:
        _watches.remove(self)
        if not _watches:
            Agent.iter = _original_iter

    def begin(self, agent: Any, prompt: Any, given: Sequence[Any], deps: Any = None, *, goes_on: bool = False) -> _Run:
        """Look at what a run is about to use."""
        with self._lock:
            number = next(self._numbers)
            # What takes the place of the agent's own toolsets, as a test's double does, is given to this run only, too.
            given = [*_overriding(agent), *given]
            known = [toolset for toolset in given if self._was_given(toolset)]
            fresh = [toolset for toolset in given if not any(toolset is other for other in known)]
            own = [toolset for toolset in agent.toolsets if not any(toolset is other for other in given)]
            roots = [*own, *_capabilities(agent), *known, *fresh]
            places = [
                (root, Place(type(root).__name__, holder=label(root)))
                for root in roots
                if rules.kind(rules.class_of(root)) == 'walked'
            ]
            snapshot = Snapshot(places, max_objects=self.max_objects, max_seconds=self.max_seconds)
            active = [other.snapshot for other in self._active]
            if rules.kind(rules.class_of(deps)) == 'walked' and not any(deps in other for other in active):
                snapshot.add(deps, Place('deps', holder=_DEPS), active)
            else:
                deps = None
            title = f'run {number} of {_agent_name(agent)}{_quoted(prompt)}{self.context and f" in {self.context}"}'
            run = _Run(number, agent, title, fresh, snapshot, roots, list(self._active), deps, goes_on)
            self._begun = number
            self.report.too_much |= not run.snapshot.complete
            for other in self._active:
                other.beside.append(run)
            self._active.append(run)
            return run

    def entered(self, run: _Run, used: list[Any]) -> None:
        """Find out what of earlier runs is still there when a run has begun."""
        with self._lock:
            run.used = used
            run.snapshot.entered()
            for left in [left for left in self._left if self._concerns(left, run)]:
                self._left.remove(left)
                if left.change.is_undone():
                    self._report(left.finding, self.report.cleared)
                elif not left.finding.read_by:
                    left.finding.read_by = str(run)
                    self._report(left.finding, self.report.leaks)

    def end(
        self,
        run: _Run,
        messages: Sequence[Any],
        deps: Any,
        error: BaseException | None,
        offered: Sequence[str] = (),
    ) -> None:
        """Find out what a run has changed."""
        with self._lock:
            self._active.remove(run)
            self.report.runs += 1
            if error is not None:
                self.report.failed.append(f'{run}: {type(error).__name__}: {error}')
            inputs, called = _inputs(messages, deps, offered)
            returned = _Returned(messages)
            if not run.goes_on:
                self._find_told(run, inputs, deps, returned)
            for change in run.snapshot.changes():
                if is_declared(change.place.name, self.shared):
                    continue
                # What is in the deps is no input to what is in the deps.
                given = inputs if change.place.holder != _DEPS else _inputs(messages, None, offered)[0]
                harmless = _is_harmless(change, given)
                note = '' if harmless else _note(run, change, given, returned)
                texts = {one for one in rules.atoms([change.new]) if isinstance(one, str) and len(one) > 2}
                if texts and (harmless or note):
                    finding = self._finding(run, change, called)
                    self._kept.append(_Kept(change, finding, self._begun, inputs, set(rules.atoms([deps])), texts))
                    del self._kept[:-1000]
                if not harmless:
                    self._leave(run, change, called, note)
            for toolset in run.given:
                self._given[id(toolset)] = _reference(toolset)

    def _find_told(self, run: _Run, inputs: rules.Inputs, deps: Any, returned: _Returned) -> None:
        """Find out what of that which looked harmless a run was told by its tools, without having given it to them."""
        for kept in self._kept:
            told = [text for text in kept.texts if text in returned.texts and not inputs.are_in(text)]
            name = kept.finding.name
            if kept.begun >= run.number or name in self._known or not told or kept.change.is_undone():
                continue
            if any(kept.inputs.found_in(text) for text in told):
                kept.finding.read_by = str(run)
                self._known[name] = kept.finding
                self.report.noted.pop(name, None)
                self._report(kept.finding, self.report.leaks)
            elif kept.deps != set(rules.atoms([deps])):
                note = f'The tools told {run}, which had other deps. If it depends on who asks, give each run its own.'
                self._take_note(kept.finding, note)

    def _take_note(self, finding: Finding, note: str) -> None:
        text = f'{finding.where}: {finding.what}, left by {finding.left_by}. {note}'
        self.report.noted.setdefault(finding.name, text)

    def _finding(self, run: _Run, change: Change, called: list[str]) -> Finding:
        root = next((root for root in run.roots if label(root) == change.place.holder), run.roots[0])
        unsure = ''.join(f', or {other}, which went on at the same time' for other in self._beside(run, change))
        tools = f', which called {listed(called)}' if called else ''
        return Finding(
            where=str(change.place),
            name=change.slot.name,
            toolset=change.place.holder,
            held_by='deps'
            if change.place.holder == _DEPS
            else 'toolset'
            if isinstance(root, AbstractToolset)
            else 'capability',
            what=change.text,
            left_by=f'{run}{tools}{unsure}',
            remedy=_remedy(run, change, root),
            times=0,
            next_run=f'the next run of {_agent_name(run.agent)}',
        )

    def _beside(self, run: _Run, change: Change) -> list[_Run]:
        return [other for other in run.beside if change.node.value in other.snapshot]

    def _leave(self, run: _Run, change: Change, called: list[str], note: str) -> None:
        name = change.slot.name
        if note and name not in self._known:
            self._take_note(self._finding(run, change, called), note)
            return
        self.report.noted.pop(name, None)
        if (finding := self._known.get(name)) is None:
            finding = self._known[name] = self._finding(run, change, called)
        beside = self._beside(run, change)
        finding.times += 1
        if beside and not finding.read_by:
            finding.read_by = f'{beside[0]}, at the same time,'
        in_deps = change.place.holder == _DEPS and not change.node.place.shared
        own = next((toolset for toolset in run.given if self._is_only_in(toolset, run, change)), None)
        own = run.deps if in_deps else own
        self._left.append(_Left(change, finding, _reference(own if own is not None else run.agent), in_deps))
        del self._left[:-1000]
        if own is None and finding not in self.report.cleared:
            self._report(finding, self.report.leaks)
        elif own is not None:
            finding.next_run = f'the next run that is given {"these deps" if in_deps else f"this {label(own)}"}'

    def _is_only_in(self, toolset: Any, run: _Run, change: Change) -> bool:
        return change.place.holder == label(toolset) and not change.node.place.shared

    def _report(self, finding: Finding, findings: list[Finding]) -> None:
        """Put a finding among the leaks, or among those that were cleared unless some run has read it."""
        others = self.report.cleared if findings is self.report.leaks else self.report.leaks
        if findings is self.report.cleared and finding.read_by:
            return
        if finding in others:
            others.remove(finding)
        if finding not in findings:
            findings.append(finding)

    def _concerns(self, left: _Left, run: _Run) -> bool:
        owner = left.owner()
        if left.in_deps:
            return not run.goes_on and left.change.node.value in run.snapshot
        return owner is run.agent or any(owner is root for root in run.roots) or left.change.node.value in run.snapshot

    def _was_given(self, toolset: Any) -> bool:
        known = self._given.get(id(toolset))
        return known is not None and known() is toolset


def _watched_iter(original: Callable[..., Any]) -> Any:
    @asynccontextmanager
    @functools.wraps(original)
    async def iter(agent: Any, user_prompt: Any = None, **options: Any) -> AsyncIterator[Any]:
        watches = list(_watches)
        deps, goes_on = options.get('deps'), bool(options.get('message_history'))
        given = [*(options.get('toolsets') or ())]
        runs = [watch.begin(agent, user_prompt, given, deps, goes_on=goes_on) for watch in watches]
        messages: Callable[[], Any] = list[Any]
        offered: Callable[[], Any] = list[Any]
        error: BaseException | None = None
        try:
            async with original(agent, user_prompt, **options) as agent_run:
                state, inside = agent_run.ctx.state, agent_run.ctx.deps
                messages = lambda: state.message_history
                offered = lambda: inside.tool_manager.tools or ()
                used = [*_tree(inside.tool_manager.toolset), *_tree(getattr(inside, 'root_capability', None))]
                for watch, run in zip(watches, runs, strict=False):
                    watch.entered(run, used)
                yield agent_run
        except BaseException as raised:
            error = raised
            raise
        finally:
            for watch, run in zip(watches, runs, strict=False):
                watch.end(run, messages(), deps, error, [*offered()])

    return iter


def _tree(value: Any) -> Iterator[Any]:
    """Yield a toolset or a capability, and those that it wraps or combines."""
    if rules.is_toolset(value):
        yield value
        for inner in (getattr(value, 'wrapped', None), getattr(value, '_toolset', None)):
            yield from _tree(inner)
        for inner in (*getattr(value, 'toolsets', ()), *getattr(value, 'capabilities', ())):
            yield from _tree(inner)


def _overriding(agent: Any) -> list[Any]:
    """Return the toolsets of `agent.override(toolsets=[...])`, if the run is in such a block."""
    found = getattr(agent, '_override_toolsets', None)
    return list(getattr(found.get(), 'value', ())) if found is not None else []


class _Returned:
    """What the tools of a run have returned."""

    def __init__(self, messages: Sequence[Any]):
        parts = [part for message in messages for part in message.parts]
        returned = [part.content for part in parts if part.part_kind == 'tool-return']
        self.atoms = set(rules.atoms(returned))
        self.texts = ' '.join(str(one) for one in returned)

    def tells(self, value: Any) -> bool:
        """Whether a value can be found in it."""
        return any(atom in self.atoms or str(atom) in self.texts for atom in rules.atoms([value]))


def _note(run: _Run, change: Change, inputs: rules.Inputs, returned: _Returned) -> str:
    """Say what is to be known of a change that tells no run of another one, as far as that can be seen; or nothing."""
    if change.place.holder != _DEPS and not run.snapshot.is_read(change):
        return 'No tool reads it, as it seems. If your application does, it finds what all runs have left.'
    if change.group in ('inner', 'member'):
        return ''
    new, counted = change.new, rules.is_counted(change.old, change.new)
    entries: dict[Any, Any] = new if issubclass(type(new), dict) and not change.old else {}
    if change.group == 'item':
        entries, added = new, isinstance(change.node.value, dict) and change.old.keys().isdisjoint(new)
        new, olds = [*entries.values()], [change.old.get(key, rules.MISSING) for key in entries]
        counted = bool(new) and all(map(rules.is_counted, olds, new)) and not inputs.found_in([*entries])
        entries = entries if added else {}
    if counted and not returned.tells(new) and not inputs.are_in(new):
        return 'It looks like a count or a time of all runs. If a tool decides by it, as by a limit, give each run its own.'
    asked = all(inputs.found_in(key) and not isinstance(value, (int, float)) for key, value in entries.items())
    if entries and (asked or returned.tells([*entries.values()])) and inputs.are_kept_apart(entries):
        return 'It looks like a cache. If it depends on who asks, or if a tool lists it, give each run its own.'
    return ''


def _capabilities(agent: Any) -> list[Any]:
    """Return the agent's capabilities; there are none before pydantic-ai 2."""
    root = getattr(agent, 'root_capability', None)
    return list(getattr(root, 'capabilities', ()))


def _agent_name(agent: Any) -> str:
    return f'agent {agent.name!r}' if agent.name else 'an agent'


def _quoted(prompt: Any) -> str:
    if not isinstance(prompt, str):
        return ''
    return f' ({prompt!r})' if len(prompt) <= 40 else f' ({prompt[:37] + "..."!r})'


def _inputs(messages: Sequence[Any], deps: Any, offered: Sequence[str]) -> tuple[rules.Inputs, list[str]]:
    """Return what a run was given, and the names of the tools that it called."""
    parts = [part for message in messages for part in message.parts]
    calls = [part for part in parts if part.part_kind == 'tool-call']
    prompts = [part.content for part in parts if part.part_kind == 'user-prompt']
    called = [call.tool_name for call in calls]
    return rules.Inputs(prompts, deps, [_arguments(call) for call in calls], called=called, offered=offered), called


def _arguments(call: Any) -> Any:
    try:
        return list(call.args_as_dict().values())
    except (ValueError, AssertionError):
        return call.args


def _is_harmless(change: Change, inputs: rules.Inputs) -> bool:
    if change.group == 'inner':
        return False  # the content of a buffer, which is no cache
    name = re.split(r'[.:]', change.slot.name)[-1]
    if change.group == 'item':
        keys = [*change.old, *change.new]
        if not _is_on_offer(change) and all(
            rules.harmless_entry(change.old.get(key, rules.MISSING), change.new.get(key, rules.MISSING)) for key in keys
        ):
            return True
        return not change.old_group[2] and rules.looks_loaded(name, change.new, inputs)
    if change.group == 'member':
        if all(rules.harmless_entry(rules.MISSING, value) for value in (*change.old, *change.new)):
            return True
        return not change.old_group[2] and rules.looks_loaded(name, change.new, inputs)
    return rules.harmless(str(change.key).rpartition(':')[2], change.old, change.new, inputs)


def _is_on_offer(change: Change) -> bool:
    """Whether the tools changed that a toolset offers: unlike a cache of tools, they are there for the next run."""
    path = change.node.path()
    return len(path) > 1 and path[-1].key == 'tools' and rules.is_toolset(path[-2].value)


def _remedy(run: _Run, change: Change, root: Any) -> str:
    """Say what to write instead of what holds a change, and what it's held by if that comes from outside of the toolset."""
    if change.place.holder == _DEPS:
        return remedy_of_deps(change.slot, run.deps)
    inner = _inner_root(run, change) or root
    path = change.node.path()
    start = max((number for number, node in enumerate(path) if rules.is_toolset(node.value)), default=0)
    inside = path[start + 1 :]
    by = held_by(path[start].value, inside[0].key, [node.value for node in inside]) if inside else ''
    return remedy(change.slot, inner, by, returns_itself=any(inner is one for one in run.used))


def _reference(value: Any) -> Callable[[], Any]:
    """Refer to an object without keeping it alive, if that's possible."""
    try:
        return weakref.ref(value)
    except TypeError:  # as for a dict
        return lambda: value


def _inner_root(run: _Run, change: Change) -> Any:
    """Return the toolset whose attribute changed, which may be inside of another one."""
    if not rules.is_toolset(change.node.value):
        start = change.place.expression.partition('.')[0]
        found = (value for value in run.snapshot if type(value).__name__ == start)
        return next((value for value in found if rules.is_toolset(value)), None)
    return change.node.value
