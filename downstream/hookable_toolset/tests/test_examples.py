from __future__ import annotations

import asyncio
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests

from hookable_toolset import AgentContext, Session, SessionStore

from .conftest import script


def test_main_example_shows_what_it_says(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    main = str(Path(__file__).parents[1] / 'examples' / 'main.py')
    monkeypatch.setattr('sys.argv', [main])
    runpy.run_path(main, run_name='__main__')
    shown = capsys.readouterr().out
    for line in (
        '7 / none at all',
        "['tea', 'coffee'] tea, milk",
        'tea / the helper says: tea, milk / tea, milk, coffee',
        'paid 4 EUR',
        "revision 1 waits for: pay {'amount': '5'}",
        "    stock -> 7 {'asked for': 'COFFEE'}",
        'tea / paid 5 EUR',
    ):
        assert f'{line}\n' in shown


def test_examples_of_the_readme_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv('OPENAI_API_KEY', 'none')
    monkeypatch.chdir(tmp_path)
    readme = (Path(__file__).parents[1] / 'README.md').read_text()
    scope: dict[str, Any] = {'__name__': 'readme'}
    samples = re.findall(r'```python\n(.*?)```', readme, re.DOTALL)
    assert len(samples) == readme.count('```python') == 2
    for code in samples:  # in one file, one after another
        exec(compile(code, 'README.md', 'exec', dont_inherit=True), scope)  # noqa: S102
    agent: Agent[AgentContext, Any] = scope['agent']
    with agent.override(model=script(('read_file', {'path': str(tmp_path / 'missing')}))):
        output = agent.run_sync('Go', deps=AgentContext()).output
        assert output.startswith('It failed: [Errno 2]')
        assert isinstance(asyncio.run(scope['answer']('Go')), DeferredToolRequests)
        asyncio.run(scope['main']())
        assert 'DeferredToolRequests' in capsys.readouterr().out
    with agent.override(model=script('Hello there')):

        async def talk() -> Any:
            async with SessionStore('sessions.db', scope['ShopState']) as store:
                await scope['turn'](store, 'grace', 'Hello')
                context: Any = (await Session.open(store, 'grace', scope['ShopContext']())).context
                return context.customer

        assert asyncio.run(talk()) == 'grace'
