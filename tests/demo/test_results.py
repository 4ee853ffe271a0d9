from __future__ import annotations

import json

import pytest

from demo.results import Call, Environment, ModelRefusedError, NotResultsError, Seen, read_environment, read_scenario
from tests.demo.facts import count_facts, environment_facts, order_facts


def test_read_environment_first_line_is_its_facts() -> None:
    line = json.dumps(environment_facts(model='openai:x'))
    assert read_environment(line) == Environment(version='1.0', python='3.12.1', model='openai:x', scenarios=2)


def test_read_environment_unusable_model_is_refused_in_the_words_of_the_provider() -> None:
    with pytest.raises(ModelRefusedError, match=r'^Set the `X_API_KEY` environment variable$'):
        read_environment('{"unusable_model": "Set the `X_API_KEY` environment variable"}')


@pytest.mark.parametrize(
    ('line', 'words'),
    [
        ('', 'It printed nothing.'),
        ('Traceback', "A line of it is 'Traceback', which is not JSON."),
        ('[1]', "A line of it is '[1]', which is not a JSON object."),
        ('{"version": "1"}', """Its first line is '{"version": "1"}'."""),
    ],
)
def test_read_environment_anything_else_is_not_results(line: str, words: str) -> None:
    with pytest.raises(NotResultsError) as caught:
        read_environment(line)
    assert str(caught.value) == words


def test_read_scenario_runs_have_what_was_asked_and_what_happened() -> None:
    scenario = read_scenario(json.dumps(count_facts('second search')))
    search = Call('search', {'query': 'fish'})
    assert (scenario.key, scenario.title) == ('count', 'A toolset counts.')
    first, second = scenario.runs
    assert (first.user, first.did, first.asked, first.alone) == ('Alice', 'Alice searches.', (search,), None)
    assert second.seen == Seen((search,), ('second search',), None)
    assert second.alone == Seen((search,), ('first search',), None)
    assert second.committed is None


def test_read_scenario_orders_have_what_was_committed() -> None:
    failed, succeeded = read_scenario(json.dumps(order_facts())).runs
    assert (failed.fails, failed.seen.error, failed.committed) == ('tool', 'SoldOutError: no desk', ())
    assert (succeeded.fails, succeeded.seen.error, succeeded.committed) == (None, None, ('lamp', 'desk'))


@pytest.mark.parametrize('missing', ['key', 'title', 'runs'])
def test_read_scenario_without_one_of_its_facts_is_not_results(missing: str) -> None:
    facts = count_facts('second search')
    del facts[missing]
    with pytest.raises(NotResultsError, match='A line of it is'):
        read_scenario(json.dumps(facts))


@pytest.mark.parametrize('missing', ['user', 'did', 'fails', 'asked', 'called', 'saw', 'error', 'committed', 'alone'])
def test_read_scenario_run_without_one_of_its_facts_is_not_results(missing: str) -> None:
    facts = count_facts('second search')
    del facts['runs'][1][missing]
    with pytest.raises(NotResultsError, match='A line of it is'):
        read_scenario(json.dumps(facts))


@pytest.mark.parametrize(
    ('other', 'alike'),
    [
        (Call('run', {'code': 'X=1'}), True),
        (Call('run', {'code': 'x = 2'}), False),
        (Call('walk', {'code': 'x = 1'}), False),
        (Call('run', {'code': 'x = 1', 'more': ''}), False),
        (Call('run', {}), False),
    ],
)
def test_call_is_like_another_but_for_capitals_and_white_space(other: Call, alike: bool) -> None:
    assert Call('run', {'code': 'x = 1'}).is_like(other) is alike
