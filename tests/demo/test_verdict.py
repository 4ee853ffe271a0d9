from __future__ import annotations

import json
from typing import Any

import pytest

from demo.results import Environment, Results, read_scenario
from demo.verdict import Comparison, State, Verdict, compare, conclude, judge
from tests.demo.facts import count_facts, order_facts

LEAKS, ISOLATED, UNCLEAR = (Verdict(state, '') for state in State)


def judge_facts(facts: dict[str, Any]) -> Verdict:
    return judge(read_scenario(json.dumps(facts)))


def change_run(facts: dict[str, Any], index: int, **changes: Any) -> dict[str, Any]:
    facts['runs'][index].update(changes)
    return facts


def test_judge_run_that_saw_something_else_than_on_its_own_leaks() -> None:
    verdict = judge_facts(count_facts('second search'))
    assert str(verdict) == 'leaks: run 2 saw what an earlier run left'
    assert verdict == Verdict(State.LEAKS, 'run 2 saw what an earlier run left', (2,))


def test_judge_run_that_saw_what_it_sees_on_its_own_is_isolated() -> None:
    verdict = judge_facts(count_facts('first search'))
    assert str(verdict) == 'isolated: run 2 saw what it sees on its own'
    assert verdict == Verdict(State.ISOLATED, 'run 2 saw what it sees on its own', (2,))


def test_judge_answers_after_those_asked_for_do_not_count() -> None:
    facts = count_facts('first search')
    again = facts['runs'][1]['called'] * 2
    assert (
        judge_facts(change_run(facts, 1, called=again, saw=['first search', 'second search'])).state is State.ISOLATED
    )


@pytest.mark.parametrize(
    ('committed', 'words'),
    [
        (['lamp'], 'leaks: run 1 failed, but committed half an order'),
        (['lamp', 'desk'], 'leaks: run 1 failed, but committed an order'),
        ([], 'isolated: run 1 rolled back'),
    ],
)
def test_judge_failed_run_leaks_what_it_committed(committed: list[str], words: str) -> None:
    verdict = judge_facts(order_facts(*committed))
    assert str(verdict) == words
    assert verdict.runs == (1,)


def test_judge_several_failed_runs_names_those_that_committed() -> None:
    facts = order_facts('lamp')
    rolled_back = order_facts()['runs'][0]
    facts['runs'] = [facts['runs'][0], rolled_back, facts['runs'][0]]
    assert str(judge_facts(facts)) == 'leaks: runs 1 and 3 failed, but committed half an order'
    facts['runs'] = [rolled_back, rolled_back, rolled_back]
    assert str(judge_facts(facts)) == 'isolated: runs 1, 2 and 3 rolled back'


def test_judge_failed_run_whose_model_made_the_first_call_only_is_judged() -> None:
    facts = order_facts('lamp')
    called = facts['runs'][0]['called'][:1]
    assert judge_facts(change_run(facts, 0, called=called)).state is State.LEAKS


@pytest.mark.parametrize('called', [[], [['add_item', {'item': 'desk'}]]])
def test_judge_failed_run_without_the_first_call_is_unclear(called: list[Any]) -> None:
    assert judge_facts(change_run(order_facts(), 0, called=called)).state is State.UNCLEAR


def test_judge_model_that_called_nothing_is_unclear() -> None:
    verdict = judge_facts(change_run(count_facts('first search'), 1, called=[], saw=[]))
    assert str(verdict) == "unclear: in run 2 the model made no call, asked for `search(query='fish')`"
    assert verdict.runs == ()


def test_judge_model_that_called_something_else_on_its_own_is_unclear() -> None:
    facts = count_facts('second search')
    facts['runs'][1]['alone']['called'] = [['search', {'query': 'cats'}]]
    words = "in run 2 on its own the model made `search(query='cats')`, asked for `search(query='fish')`"
    assert str(judge_facts(facts)) == f'unclear: {words}'


@pytest.mark.parametrize('index', [0, 1])
def test_judge_run_that_failed_unasked_is_unclear(index: int) -> None:
    facts = change_run(count_facts('second search'), index, error='ModelHTTPError: 401')
    assert str(judge_facts(facts)) == f'unclear: run {index + 1} failed'


def test_judge_run_that_failed_on_its_own_is_unclear() -> None:
    facts = count_facts('second search')
    facts['runs'][1]['alone']['error'] = 'ModelHTTPError: 401'
    assert str(judge_facts(facts)) == 'unclear: run 2 failed on its own, with ModelHTTPError: 401'


def test_judge_run_that_should_have_failed_is_unclear() -> None:
    facts = change_run(order_facts(), 0, error=None)
    assert str(judge_facts(facts)) == 'unclear: run 1 was meant to fail, and did not'


def test_judge_run_that_succeeded_without_committing_is_unclear() -> None:
    facts = change_run(order_facts(), 1, committed=['lamp'])
    assert str(judge_facts(facts)) == 'unclear: run 2 succeeded, but only 1 of 2 items are in the database'


def test_judge_several_doubts_are_all_named() -> None:
    facts = change_run(change_run(count_facts('second search'), 0, error='a'), 1, error='b')
    assert str(judge_facts(facts)) == 'unclear: run 1 failed; run 2 failed'


def test_judge_scenario_with_nothing_to_compare_is_unclear() -> None:
    facts = count_facts('second search')
    facts['runs'] = facts['runs'][:1]
    assert str(judge_facts(facts)) == 'unclear: there is nothing to compare'


def test_compare_pairs_the_scenarios_of_base_and_fork() -> None:
    environment = Environment('1.0', '3.12.1', None, 1)
    base, fork = (
        Results(environment, (read_scenario(json.dumps(count_facts(second))),))
        for second in ('second search', 'first search')
    )
    (comparison,) = compare(base, fork)
    assert (comparison.scenario, comparison.base.state, comparison.fork.state) == ('count', State.LEAKS, State.ISOLATED)
    assert comparison.shows_the_difference
    assert not compare(fork, base)[0].shows_the_difference


@pytest.mark.parametrize(
    ('pairs', 'shown', 'words'),
    [
        ([(LEAKS, ISOLATED)] * 2, True, 'In all 2 scenarios the base leaks and the fork does not.'),
        ([(LEAKS, LEAKS)] * 2, False, 'In `0`, `1` base and fork behave alike: both leak.'),
        ([(ISOLATED, ISOLATED)], False, 'In `0` base and fork behave alike: both are isolated.'),
        ([(ISOLATED, LEAKS), (LEAKS, ISOLATED)], False, 'In `0` the fork leaks and the base does not.'),
        ([(LEAKS, UNCLEAR)], False, 'In `0` the fork is unclear.'),
        ([(UNCLEAR, ISOLATED)], False, 'In `0` the base is unclear.'),
        ([(UNCLEAR, UNCLEAR)], False, 'In `0` both base and fork are unclear.'),
        (
            [(LEAKS, LEAKS), (UNCLEAR, ISOLATED), (LEAKS, LEAKS)],
            False,
            'In `0`, `2` base and fork behave alike: both leak. In `1` the base is unclear.',
        ),
        ([], False, 'There is nothing to compare.'),
    ],
)
def test_conclude_is_true_only_if_the_base_leaks_everywhere_and_the_fork_nowhere(
    pairs: list[tuple[Verdict, Verdict]], shown: bool, words: str
) -> None:
    assert conclude([Comparison(str(key), *pair) for key, pair in enumerate(pairs)]) == (shown, words)
