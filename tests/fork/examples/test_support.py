from __future__ import annotations

import asyncio
import sys
from socket import gaierror

import asyncpg
import httpx
import pytest
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.models import Model

from examples.postgres import NoPostgresError
from examples.support import Step, call, database, run_main, script, scripts

pytestmark = pytest.mark.anyio


async def double(number: int) -> int:
    return 2 * number


@pytest.mark.parametrize(
    ('steps', 'output'),
    [
        (('Good morning.', call('double', number=1)), 'Good morning.'),
        ((call('double', number=1), call('double', number=2)), '4'),
        (([call('double', number=1), call('double', number=2)],), '2, 4'),
        ((call('double', number=1), 'That was all.'), 'That was all.'),
        ((call('double', number=1), 'It is {results}.'), 'It is 2.'),
        ((), 'done'),
    ],
)
async def test_script_ends_with_a_text_or_with_the_last_results(steps: tuple[Step, ...], output: str) -> None:
    agent = Agent(script(*steps), toolsets=[FunctionToolset([double])])
    results = await asyncio.gather(*(agent.run('go') for _ in range(3)))

    assert [result.output for result in results] == [output] * 3


async def test_scripts_are_chosen_by_the_prompt() -> None:
    agent = Agent(scripts({'one': [call('double', number=1)], 'two': ['two']}), toolsets=[FunctionToolset([double])])

    assert [(await agent.run(prompt)).output for prompt in ('one', 'two')] == ['2', 'two']


SCRIPT = script()


@pytest.mark.parametrize(
    ('arguments', 'model'), [([], SCRIPT), (['--model', 'openai:gpt-5-mini'], 'openai:gpt-5-mini')]
)
def test_run_main_takes_the_script_unless_a_model_is_named(
    arguments: list[str], model: Model | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[Model | str] = []

    async def main(model: Model | str) -> None:
        got.append(model)

    monkeypatch.setenv('OPENAI_API_KEY', 'none')
    monkeypatch.setattr(sys, 'argv', ['example', *arguments])
    run_main(main, SCRIPT)

    assert got == [model]


def test_run_main_without_postgresql_says_what_else_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(model: Model | str) -> None:
        raise NoPostgresError('It is not installed.')

    monkeypatch.setattr(sys, 'argv', ['example'])
    with pytest.raises(SystemExit, match=r'error: It is not installed\. Or name a database with `DATABASE_URL='):
        run_main(main, SCRIPT)


@pytest.mark.parametrize(
    ('error', 'said'),
    [
        (
            ConnectionRefusedError('refused'),
            r"error: The server that `DATABASE_URL` names can't be reached: refused\.$",
        ),
        (gaierror('unknown'), r"error: The server that `DATABASE_URL` names can't be reached: unknown\.$"),
        (httpx.ConnectError('refused'), r"error: The server that `DATABASE_URL` names can't be reached: refused\.$"),
        (asyncpg.ClientConfigurationError('no scheme'), r'error: The address in `DATABASE_URL` is wrong: no scheme\.$'),
        (RuntimeError('Chromium does not start: none.'), r'error: Chromium does not start: none\.$'),
    ],
)
def test_run_main_says_in_a_sentence_what_is_missing(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(model: Model | str) -> None:
        raise error

    monkeypatch.setattr(sys, 'argv', ['example'])
    monkeypatch.setenv('DATABASE_URL', 'postgresql://me:secret@elsewhere/mine')
    with pytest.raises(SystemExit, match=said) as exit_:
        run_main(main, SCRIPT)
    assert 'secret' not in str(exit_.value)


@pytest.mark.parametrize('model', ['nonsense', 'openai:gpt-5-mini'])
def test_run_main_with_a_model_that_cannot_be_used_says_why(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(model: Model | str) -> None:
        pytest.fail('run')

    monkeypatch.delenv('OPENAI_API_KEY', raising=False)
    monkeypatch.setattr(sys, 'argv', ['example', '--model', model])
    with pytest.raises(SystemExit, match=f'error: The model `{model}` cannot be used: '):
        run_main(main, SCRIPT)


def test_run_main_shows_where_other_errors_are_from(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(model: Model | str) -> None:
        raise RuntimeError('a bug')

    monkeypatch.setattr(sys, 'argv', ['example'])
    with pytest.raises(RuntimeError, match='a bug'):
        run_main(main, SCRIPT)


def test_database_that_the_environment_names_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('DATABASE_URL', 'postgresql://elsewhere/mine')
    with database() as url:
        assert url == 'postgresql://elsewhere/mine'
