from __future__ import annotations

import asyncio
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import ModelMessage, UserPromptPart
from pydantic_ai.exceptions import UnexpectedModelBehavior, UserError

from examples import saved_chat
from examples.saved_chat import ChatStore, agent, answer, start
from examples.support import Step, call, script

from .processes import Processes

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]


class Boom(Exception):
    """What the tests raise."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChatStore]:
    """Open a file without chats."""
    with closing((store := ChatStore(tmp_path / 'chats.db')).connection):
        yield store


async def nobody(who: str) -> str:
    raise Boom


async def say(store: ChatStore, prompt: str, *steps: Step, chat: str = 'chat') -> str:
    """Say something in a chat, of which the model knows nothing but these steps."""
    done = sum(message.kind == 'response' for message in store.load(chat)[1])
    with agent.override(model=script(*[''] * done, *steps)):
        return await answer(store, chat, prompt, nobody)


def prompts(messages: list[ModelMessage]) -> list[Any]:
    return [part.content for message in messages for part in message.parts if isinstance(part, UserPromptPart)]


def tasks_of(state: dict[str, Any] | None) -> Any:
    return state and state['toolsets']['tasks']


async def test_main_kills_a_process_and_goes_on_with_another(
    capsys: pytest.CaptureFixture[str], processes: Processes
) -> None:
    await saved_chat.main(saved_chat.SCRIPT)

    assert capsys.readouterr().out.splitlines() == [
        saved_chat.FIRST,
        '  [ ] book a flight, [ ] book a hotel',
        saved_chat.SECOND,
        '  [x] book a flight, [ ] book a hotel',
        saved_chat.THIRD,
        '  It calls up the hotel',
        '  The process is killed, and another one started.',
        saved_chat.THIRD,
        '  It calls up the hotel',
        'We have a room.',
        '  [x] book a flight, [x] book a hotel, [ ] rent a car',
    ]
    assert not [line for line in processes.running().values() if 'spawn_main' in line]


async def test_process_that_is_killed_in_a_turn_leaves_the_chat_as_it_was_before(tmp_path: Path) -> None:
    path = tmp_path / 'chats.db'
    async with start(path) as server:
        for prompt in saved_chat.FIRST, saved_chat.SECOND:
            assert 'answer' in await server.ask(prompt)
        assert await server.ask(saved_chat.THIRD) == {'calls': 'the hotel'}
        server.kill()
        assert server.process.exitcode == -9

    with closing((store := ChatStore(path)).connection):
        turns, messages, state = store.load(saved_chat.CHAT)
    assert turns == 2
    assert prompts(messages) == [saved_chat.FIRST, saved_chat.SECOND]
    assert tasks_of(state) == {'book a flight': True, 'book a hotel': False}


# Adds a task with each turn, and prints its number once the turn was answered
COUNT = """\
import asyncio, sys
from pathlib import Path
from pydantic_ai import ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel
from examples.saved_chat import ChatStore, agent, answer
from examples.support import call

async def respond(messages, info):
    last = messages[-1].parts[-1]
    return ModelResponse([call('add_task', task=last.content) if isinstance(last, UserPromptPart) else TextPart('ok')])

async def main():
    store = ChatStore(Path(sys.argv[1]))
    with agent.override(model=FunctionModel(respond)):
        while True:
            turn = store.load('chat')[0]
            await answer(store, 'chat', str(turn), None)
            print(turn, flush=True)

asyncio.run(main())
"""


def test_processes_that_are_killed_at_any_time_lose_nothing_that_was_reported(store: ChatStore) -> None:
    path = store.connection.execute('PRAGMA database_list').fetchall()[0][2]
    chance = random.Random(17)
    before = 0
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, '-c', COUNT, path], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout
            assert process.stdout.readline() == f'{before}\n'
            time.sleep(chance.uniform(0, 0.1))
            process.kill()
            reported = [before, *map(int, process.stdout.read().splitlines())]

        turns, messages, state = store.load('chat')
        # The last turn may have been stored without being reported.
        assert turns - reported[-1] in (1, 2)
        assert prompts(messages) == [*map(str, range(turns))]
        assert tasks_of(state) == {str(number): False for number in range(turns)}
        before = turns


async def test_chats_in_one_file_have_messages_and_tasks_of_their_own(store: ChatStore) -> None:
    for chat in 'xy':
        await say(store, f'first {chat}', call('add_task', task=chat), chat=chat)
    assert await say(store, 'second x', call('finish_task', task='x'), chat='x') == '[x] x'

    turns, messages, state = store.load('x')
    assert (turns, prompts(messages), tasks_of(state)) == (2, ['first x', 'second x'], {'x': True})
    turns, messages, state = store.load('y')
    assert (turns, prompts(messages), tasks_of(state)) == (1, ['first y'], {'y': False})


async def test_turn_that_needs_no_task_keeps_those_of_before(store: ChatStore) -> None:
    await say(store, 'one', call('add_task', task='a'))
    assert await say(store, 'two', 'Good morning.') == 'Good morning.'

    assert await say(store, 'three', call('add_task', task='b')) == '[ ] a, [ ] b'


async def test_turn_that_fails_stores_nothing(store: ChatStore) -> None:
    await say(store, 'one', call('add_task', task='a'))
    before = store.load('chat')
    with pytest.raises(Boom):
        await say(store, 'two', call('finish_task', task='a'), call('call_up', who='nobody'))
    with pytest.raises(UnexpectedModelBehavior):
        await say(store, 'two', call('finish_task', task='a'), call('no such tool'), call('no such tool'))

    assert store.load('chat') == before
    assert saved_chat.tasks.tasks == {}


async def test_two_turns_of_one_chat_at_once_are_one_turn_and_an_error(store: ChatStore) -> None:
    await say(store, 'one', call('add_task', task='a'))
    done = await asyncio.gather(
        say(store, 'b', call('add_task', task='b')),
        say(store, 'c', call('add_task', task='c')),
        return_exceptions=True,
    )

    assert sorted(type(each).__name__ for each in done) == ['IntegrityError', 'str']
    turns, messages, state = store.load('chat')
    assert turns == 2
    assert prompts(messages)[1:] == [task for task in tasks_of(state) if task != 'a']


async def test_state_that_cannot_be_stored_is_not_stored_without_its_turn(
    store: ChatStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await say(store, 'one', call('add_task', task='a'))
    before = store.load('chat')
    store.connection.execute("CREATE TRIGGER refuse BEFORE INSERT ON states BEGIN SELECT RAISE(ABORT, 'full'); END")
    with pytest.raises(sqlite3.IntegrityError, match='full'):
        await say(store, 'two', call('add_task', task='b'))

    assert store.load('chat') == before


async def test_state_of_toolsets_that_are_not_there_is_refused_before_the_model_is_asked(store: ChatStore) -> None:
    store.save('chat', 1, b'[]', {'version': 1, 'toolsets': {'notes': []}})

    with pytest.raises(UserError, match='notes'):
        await say(store, 'one', call('add_task', task='a'))
    assert store.load('chat')[0] == 1
