from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from demo.render import render
from demo.results import Environment, Results, read_scenario
from demo.verdict import compare
from tests.demo.facts import count_facts, order_facts


def results(version: str, *facts: dict[str, Any], model: str | None = None) -> Results:
    scenarios = tuple(read_scenario(json.dumps(each)) for each in facts)
    return Results(Environment(version, '3.12.1', model, len(scenarios)), scenarios)


def shown(base: Results, fork: Results, width: int = 120, terminal: bool = False) -> str:
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=terminal,
        color_system='standard' if terminal else None,
        legacy_windows=False,
    )
    console.print(render(base, fork, compare(base, fork)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


BASE = results('1.0', count_facts('second search'), order_facts('lamp'))
FORK = results('1.0+lifecycle.1', count_facts('first search'), order_facts())


def test_render_shows_base_and_fork_side_by_side() -> None:
    assert [line.rstrip() for line in shown(BASE, FORK, 80).splitlines()] == PAGE.splitlines()


@pytest.mark.parametrize('width', [60, 80, 120])
def test_render_keeps_to_the_width(width: int) -> None:
    assert max(map(len, shown(BASE, FORK, width).splitlines())) <= width


def test_render_when_piped_has_no_control_codes() -> None:
    assert '\x1b' not in shown(BASE, FORK)


def test_render_on_a_terminal_leaks_are_red_and_isolated_is_green() -> None:
    text = shown(BASE, FORK, terminal=True)
    assert '\x1b[1;31msecond search\x1b[0m' in text
    assert '\x1b[1;31m✗ leaks: run 2 saw' in text
    assert '\x1b[1;31min the database: lamp\x1b[0m' in text
    assert '\x1b[1;32mfirst search\x1b[0m' in text
    assert '\x1b[1;32m✓ isolated: run 2 saw' in text
    assert '\x1b[1;32min the database: nothing\x1b[0m' in text
    assert text.rstrip().endswith('\x1b[1;32m✓ In all 2 scenarios the base leaks and the fork does not.\x1b[0m')


def test_render_base_and_fork_alike_says_so() -> None:
    text = shown(BASE, BASE, terminal=True)
    assert 'isolated' not in text
    assert text.rstrip().endswith('\x1b[1;31m✗ In `count`, `transaction` base and fork behave alike: both leak.\x1b[0m')


def test_render_control_characters_and_markup_of_a_model_are_shown_as_text() -> None:
    text = shown(results('1.0', count_facts('\x1b[2J[red]second\x07')), FORK_COUNT)
    assert '\x1b' not in text
    assert '\x07' not in text
    assert ' [2J[red]second ' in text


def test_render_long_error_is_cut() -> None:
    facts = count_facts('first search')
    facts['runs'][1]['error'] = 'x' * 5000
    text = shown(results('1.0', facts), FORK_COUNT)
    assert 250 < text.count('x') < 350
    assert '…' in text


def test_render_real_model_that_did_not_do_as_asked_says_what_next() -> None:
    facts = count_facts('first search')
    facts['runs'][1].update(called=[], saw=[])
    text = shown(results('1.0', facts, model='openai:x'), results('1.1', facts, model='openai:x'))
    assert 'The model is openai:x.' in ' '.join(text.split())
    assert 'nothing: no tool was called' in text
    assert '? unclear: in run 2 the model made no' in text
    assert text.rstrip().endswith(
        'A real model may not do as asked, and its provider may refuse. Try again, or leave `--model` out.'
    )


FORK_COUNT = results('1.0+lifecycle.1', count_facts('first search'))

PAGE = """\
The same script, demo/scenarios.py, on the base and on the fork. Each scenario
has one agent, which one user runs after the other. A run should see what it
sees on its own, with a toolset that nobody has used before. The model is
scripted, without a network.

1. A toolset counts.
╭──────────────────────┬───────────────────────────┬───────────────────────────╮
│                      │ base 1.0                  │ fork 1.0+lifecycle.1      │
├──────────────────────┼───────────────────────────┼───────────────────────────┤
│ run 1  Alice         │ first search              │ first search              │
│ searches.            │                           │                           │
│                      │                           │                           │
│ run 2  Bob searches. │ second search             │ first search              │
├──────────────────────┼───────────────────────────┼───────────────────────────┤
│ verdict              │ ✗ leaks: run 2 saw what   │ ✓ isolated: run 2 saw     │
│                      │ an earlier run left       │ what it sees on its own   │
╰──────────────────────┴───────────────────────────┴───────────────────────────╯

2. A toolset holds a transaction.
╭──────────────────────┬───────────────────────────┬───────────────────────────╮
│                      │ base 1.0                  │ fork 1.0+lifecycle.1      │
├──────────────────────┼───────────────────────────┼───────────────────────────┤
│ run 1  Alice orders. │ lamp added                │ lamp added                │
│                      │ failed: SoldOutError: no  │ failed: SoldOutError: no  │
│                      │ desk                      │ desk                      │
│                      │ in the database: lamp     │ in the database: nothing  │
│                      │                           │                           │
│ run 2  Carol orders. │ lamp added                │ lamp added                │
│                      │ desk added                │ desk added                │
│                      │ in the database: lamp,    │ in the database: lamp,    │
│                      │ desk                      │ desk                      │
├──────────────────────┼───────────────────────────┼───────────────────────────┤
│ verdict              │ ✗ leaks: run 1 failed,    │ ✓ isolated: run 1 rolled  │
│                      │ but committed half an     │ back                      │
│                      │ order                     │                           │
╰──────────────────────┴───────────────────────────┴───────────────────────────╯

✓ In all 2 scenarios the base leaks and the fork does not.
"""
