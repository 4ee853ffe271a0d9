from __future__ import annotations

import asyncio
import socket

import httpx
import pytest
from pydantic_ai import Agent, UnexpectedModelBehavior
from pydantic_ai.models import Model

from examples import webhook
from examples.support import call, script, scripts

pytestmark = pytest.mark.anyio


def agent_for(url: str, model: Model) -> Agent[object, str]:
    return Agent(model, deps_type=object, toolsets=[webhook.WebhookToolset(url)])


async def test_main_without_a_url_posts_once_though_the_first_response_is_lost(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv('WEBHOOK_URL', raising=False)

    await webhook.main(webhook.SCRIPT)

    assert capsys.readouterr().out.splitlines() == ['posted', "2 requests, messages: ['The report is ready.']"]


async def test_main_with_a_url_posts_there(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with webhook.run_channel() as channel:
        monkeypatch.setenv('WEBHOOK_URL', channel.url)
        await webhook.main(webhook.SCRIPT)

    assert capsys.readouterr().out.splitlines() == ['posted']
    assert list(channel.messages.values()) == ['The report is ready.']


async def test_calls_are_told_apart_within_a_run_and_between_runs() -> None:
    # The script's calls have the same ids in each run.
    model = script([call('post_message', text='one'), call('post_message', text='one')])
    with webhook.run_channel() as channel:
        agent = agent_for(channel.url, model)
        await asyncio.gather(*(agent.run('go') for _ in range(3)))

    assert list(channel.messages.values()) == ['one'] * 6


async def test_sub_agent_shares_the_toolset_and_posts_for_itself() -> None:
    post = call('post_message', text='done')
    with webhook.run_channel() as channel:
        toolset = webhook.WebhookToolset(channel.url)
        model = scripts({'go': [post, call('delegate')], 'go on': [post]})
        child = Agent(model, toolsets=[toolset])
        agent = Agent(model, toolsets=[toolset])

        @agent.tool_plain
        async def delegate() -> str:
            return (await child.run('go on')).output

        await agent.run('go')

    assert toolset.copy() is toolset
    assert list(channel.messages.values()) == ['done'] * 2


async def test_refused_message_is_left_to_the_model() -> None:
    model = script(call('post_message', text=''), call('post_message', text='Better.'))
    with webhook.run_channel() as channel:
        result = await agent_for(channel.url, model).run('go')

    # Which part it is differs between lines.
    told = [str(getattr(part, 'content', '')) for message in result.all_messages() for part in message.parts]
    assert 'The webhook refused the message: The text is empty.' in told
    assert list(channel.messages.values()) == ['Better.']


async def test_message_that_is_refused_again_and_again_ends_the_run() -> None:
    empty = [call('post_message', text='') for _ in range(3)]
    with webhook.run_channel() as channel, pytest.raises(UnexpectedModelBehavior):
        await agent_for(channel.url, script(*empty)).run('go')

    assert channel.messages == {}


async def test_any_other_error_of_the_server_ends_the_run() -> None:
    with webhook.run_channel() as channel, pytest.raises(httpx.HTTPStatusError, match='404'):
        await agent_for(f'{channel.url}/missing', webhook.SCRIPT).run('go')

    assert (channel.requests, channel.messages) == (1, {})


async def test_server_that_never_responds_ends_the_run_after_three_attempts() -> None:
    with webhook.run_channel(lost_responses=3) as channel, pytest.raises(httpx.RemoteProtocolError):
        await agent_for(channel.url, webhook.SCRIPT).run('go')

    assert channel.requests == 3
    assert list(channel.messages.values()) == ['The report is ready.']


async def test_server_that_is_not_there_ends_the_run() -> None:
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        url = f'http://127.0.0.1:{free.getsockname()[1]}/channel'

        with pytest.raises(httpx.ConnectError):
            await agent_for(url, webhook.SCRIPT).run('go')
