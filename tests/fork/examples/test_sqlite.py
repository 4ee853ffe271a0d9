from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pydantic_ai import Agent

from examples import sqlite
from examples.sqlite import OrderToolset
from examples.support import call, script

pytestmark = pytest.mark.anyio


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / 'shop.sqlite'
    with closing(sqlite3.connect(path)) as connection:
        connection.execute('CREATE TABLE orders (item TEXT)')
    return path


def ordered(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [item for (item,) in connection.execute('SELECT item FROM orders ORDER BY item')]


async def test_main_keeps_nothing_of_the_run_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    await sqlite.main(sqlite.SCRIPT)

    assert capsys.readouterr().out.splitlines() == [
        'Order a lamp and a desk.',
        '  The run failed: The warehouse is down.',
        '  In the database: nothing',
        'Order a chair.',
        '  In the database: chair',
    ]


async def test_runs_at_once_take_turns(shop: Path) -> None:
    items = [f'item {number}' for number in range(5)]
    toolset = OrderToolset(shop)

    def order(item: str) -> Agent[None, str]:
        return Agent(script(call('order', item=item)), toolsets=[toolset])

    await asyncio.gather(*(order(item).run('Order it.') for item in items))

    assert ordered(shop) == items


async def test_run_that_waits_too_long_fails_and_one_that_is_cancelled_meanwhile_leaves_nothing(shop: Path) -> None:
    agent = Agent(script(call('order', item='lamp')), toolsets=[OrderToolset(shop, patience=0.05)])
    patient = Agent(script(call('order', item='lamp')), toolsets=[OrderToolset(shop)])
    with closing(sqlite3.connect(shop, isolation_level=None)) as other:
        other.execute('BEGIN IMMEDIATE')
        with pytest.raises(TimeoutError):
            await agent.run('Order it.')
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(patient.run('Order it.'), timeout=0.05)
        other.execute('COMMIT')

    assert ordered(shop) == []
    await patient.run('Order it.')
    assert ordered(shop) == ['lamp']


async def test_database_that_is_not_there_fails_the_run_at_once(tmp_path: Path) -> None:
    agent = Agent(script(call('order', item='lamp')), toolsets=[OrderToolset(tmp_path / 'none' / 'shop.sqlite')])

    with pytest.raises(sqlite3.OperationalError):
        await agent.run('Order it.')
