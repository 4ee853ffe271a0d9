"""Random pure and random leaking toolsets: no leak is missed, and there is no false alarm."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import AbstractToolset

from toolset_leaks import find_leaks
from toolset_leaks.snapshot import Place, Snapshot


def make_object() -> Any:
    class Held:
        def __init__(self) -> None:
            self.inside: list[str] = []

    return Held()


HOLDERS: dict[str, Callable[[], Any]] = {
    'list': list,
    'dict': dict,
    'set': set,
    'object': make_object,
    'nested': lambda: dict[str, Any](inside=[{}]),
}

Writer = Callable[[Any, str], None]
"""Writes a text into a holder, in one of several ways."""

WRITERS: dict[str, list[Writer]] = {
    'list': [lambda held, text: held.append(text), lambda held, text: held.insert(0, {'text': text})],
    'dict': [lambda held, text: held.update({text: 1}), lambda held, text: held.setdefault('first', text)],
    'set': [lambda held, text: held.add(text)],
    'object': [
        lambda held, text: held.inside.insert(len(held.inside), text),
        lambda held, text: setattr(held, 'last', text),
    ],
    'nested': [
        lambda held, text: held['inside'][0].update({text: text}),
        lambda held, text: held['inside'].append(text),
    ],
}

READERS: list[Callable[[Any, str], Any]] = [
    lambda held, text: text.upper(),
    lambda held, text: str(held),
    lambda held, text: [text, len(text)],
    lambda held, text: sorted(text),
]
"""What pure tools do."""

KEEPERS = ('attribute', 'closure', 'class', 'method')

Part = tuple[str, str, int]
"""How a toolset keeps something, what it keeps, and which writer writes to it; `-1` for none."""

parts = st.tuples(st.sampled_from(KEEPERS), st.sampled_from(list(HOLDERS)), st.integers(-1, 1))


def build(keeper: str, holder: str, writer: int, number: int, read: Callable[[Any, str], Any]) -> AbstractToolset[Any]:
    """Build a toolset with one tool that reads, or writes to, what the toolset keeps."""
    writers = WRITERS[holder]
    write = writers[writer % len(writers)] if writer >= 0 else None

    def use(held: Any, text: str) -> Any:
        if write:
            write(held, text)
            return [read(held, text), str(held)]  # What nothing reads is no leak
        return read(held, text)

    class Kept(FunctionToolset[Any]):
        on_class = HOLDERS[holder]()

        def __init__(self) -> None:
            super().__init__()
            self.held = HOLDERS[holder]()

        def from_attribute(self, text: str) -> Any:
            return use(self.held, text)

        def from_class(self, text: str) -> Any:
            return use(self.on_class, text)

    held = HOLDERS[holder]()

    def from_closure(text: str) -> Any:
        return use(held, text)

    # The same state of one class is one finding, whichever of its instances holds it.
    Kept.__name__ = f'Kept{number}'
    from_closure.__qualname__ = f'from_closure{number}'
    kept, other = Kept(), Kept()
    tool = {
        'attribute': kept.from_attribute,
        'class': kept.from_class,
        'closure': from_closure,
        'method': other.from_attribute,  # of an object that is no toolset of the agent
    }[keeper]
    kept.add_function(tool, name=f'tool_{number}')
    return kept


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(parts, min_size=1, max_size=3), st.sampled_from(READERS), st.integers(0, 3), st.integers(0, 99))
def test_random_toolsets_leak_is_found_exactly_where_it_is(
    made: list[Part], read: Callable[[Any, str], Any], wraps: int, seed: int
):
    toolsets = [build(*part, number, read) for number, part in enumerate(made)]
    wrapped = [
        toolset.prefixed('p').filtered(lambda ctx, tool: True)
        if wraps & 1
        else toolset.filtered(lambda ctx, tool: True)
        for toolset in toolsets
    ]
    agent = Agent(TestModel(), toolsets=wrapped)

    report = find_leaks(agent, seed=seed)

    leaking = {f'tool_{number}' for number, (_, _, writer) in enumerate(made) if writer >= 0}
    found = {name for leak in report.leaks for name in leaking if f'{name}`' in leak.left_by}
    event(f'{len(leaking)} of {len(made)} leak')
    assert found == leaking, report
    assert len(report.leaks) == len(leaking), report
    assert not report.failed


class Thing:
    def __init__(self) -> None:
        self.name = 'thing'


class SlottedThing(Thing):
    __slots__ = ('kept',)


MADE: list[Callable[[], Any]] = [list, dict, set, deque, Thing, SlottedThing]


def put(held: Any, value: Any, name: str) -> None:
    """Put a value into a container or an object."""
    if hasattr(held, 'append'):
        held.append(value)
    elif hasattr(held, 'add'):
        held.add(name)
    elif hasattr(held, '__setitem__'):
        held[name] = value
    else:
        setattr(held, 'kept' if isinstance(held, SlottedThing) else name, value)


@given(st.integers(0, 2**32), st.sampled_from([3, 30, 300, 1000]))
def test_random_structures_changes_are_found_exactly_where_they_are(seed: int, size: int):
    """Objects are compared many at once, and none is taken for another one."""
    chance = random.Random(seed)
    made: list[Any] = [{}]
    while len(made) < size:
        value = chance.choice(MADE)()
        holder = chance.choice([one for one in made[-20:] if not isinstance(one, (set, SlottedThing))] or made[:1])
        put(holder, value, f'name{len(made)}')
        made.append(value)
    snapshot = Snapshot([(made[0], Place('made'))])
    assert not list(snapshot.changes())

    changed = chance.sample(made, chance.randint(0, 3))
    for number, value in enumerate(changed):
        put(value, 'new', f'new{number}')

    assert {id(change.node.value) for change in snapshot.changes()} == set(map(id, changed))
    for change in snapshot.changes():
        assert change.place.expression.startswith('made')
