"""Random scripts of calls that need answers: with handlers, capabilities in all orders, streams, two runs, and calls with one id.

Whatever happens, a tool that needs an approval runs as often as that very call was approved, with the arguments that were
approved, and no call of a run that ends without an error is lost.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from pydantic_ai import (
    Agent,
    AgentRunResultEvent,
    ApprovalRequired,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    RunContext,
    TextPart,
    ToolApproved,
    ToolCallPart,
    ToolDenied,
    ToolReturnPart,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from .approvals import OUTPUTS, calling
from .capabilities import handling_deferred_calls
from .line import IS_1, stream_events

pytestmark = pytest.mark.anyio

CHUNKS = 10
SCRIPTS = 2000 if os.environ.get('HYPOTHESIS_PROFILE') == 'thorough' else 20
"""How many scripts each chunk has."""

REFUSED = ('duplicate', 'exceeded max', 'retries', 'was already executed')
"""What an error may say that such a script ends with."""


class Script:
    """What a model does, who answers, and what was approved."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.values = 0
        self.approved = Counter[tuple[str, str, str]]()
        self.looked = Counter[str]()
        self.denied: set[tuple[str, str, str]] = set()
        self.responses = [self.response() for _ in range(self.choose.randint(1, 3))]

    def response(self) -> list[Any]:
        """Make a response: calls with ids that may be equal and arguments that may not fit, maybe with a text around."""
        count = self.choose.randint(1, 4)
        ids = [f'id{self.values + index}' for index in range(count)]
        if self.choose.random() < 0.2 and not IS_1:
            ids = [self.choose.choice(ids) for _ in ids]
        parts: list[Any] = []
        for id_ in ids:
            self.values += 1
            args: Any = {'value': str(self.values)}
            if self.choose.random() < 0.1:
                args = self.choose.choice(['{"value": ', {'value': 1}])
            parts.append(ToolCallPart(self.choose.choice(['look', 'delete', 'write', 'send', 'greedy']), args, id_))
        if self.choose.random() < 0.3:
            parts.insert(self.choose.randint(0, len(parts)), TextPart('One moment'))
        return parts

    @property
    def toolset(self) -> FunctionToolset[Any]:
        """Make a tool of each kind."""
        toolset = FunctionToolset[Any]()

        @toolset.tool
        async def look(ctx: RunContext[Any], value: str) -> str:
            self.looked[value] += 1
            return 'looked'

        @toolset.tool(requires_approval=True)
        async def delete(ctx: RunContext[Any], value: str) -> str:
            self.use(ctx, value)
            return 'deleted'

        @toolset.tool
        async def write(ctx: RunContext[Any], value: str) -> str:
            if not ctx.tool_call_approved:
                raise ApprovalRequired
            self.use(ctx, value)
            return 'written'

        @toolset.tool(retries=2)
        async def greedy(ctx: RunContext[Any], value: str) -> str:
            if ctx.tool_call_approved:
                self.use(ctx, value)
            if not ctx.tool_call_approved or self.choose.random() < 0.4:
                raise self.choose.choice([ApprovalRequired, CallDeferred])(metadata={'again': value})
            return 'done'

        @toolset.tool
        async def send(ctx: RunContext[Any], value: str) -> str:
            raise CallDeferred

        return toolset

    def use(self, ctx: RunContext[Any], value: str) -> None:
        """Use an approval up. There has to be one of this very call, with these arguments."""
        key = (str(ctx.tool_name), str(ctx.tool_call_id), value)
        assert ctx.tool_call_approved
        assert self.approved[key] > 0, f'{key} runs without an approval'
        self.approved[key] -= 1

    def answer(self, requests: DeferredToolRequests, *, all_of_them: bool = False) -> DeferredToolResults:
        """Answer some calls, or all of them: approve, deny, approve with other arguments, give results."""
        results = DeferredToolResults()
        ids = Counter(call.tool_call_id for call in [*requests.approvals, *requests.calls])
        for call in requests.approvals:
            choice = self.choose.random()
            value = value_of(call)
            # One answer is never for two calls, so what has the id of another one isn't approved by itself.
            alone = int(ids[call.tool_call_id] == 1)
            if choice < 0.4:
                results.approvals[call.tool_call_id] = self.choose.choice([True, ToolApproved()])
                self.approved[call.tool_name, call.tool_call_id, value] += alone
            elif choice < 0.55:
                self.values += 1
                results.approvals[call.tool_call_id] = ToolApproved(override_args={'value': f'other {self.values}'})
                self.approved[call.tool_name, call.tool_call_id, f'other {self.values}'] += alone
            elif choice < 0.8 or all_of_them:
                results.approvals[call.tool_call_id] = self.choose.choice([False, ToolDenied('no')])
        for call in requests.calls:
            if all_of_them or self.choose.random() < 0.5:
                results.calls[call.tool_call_id] = 'sent'
        return results

    async def handler(self, ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults | None:
        if self.choose.random() < 0.2:
            return None
        results = self.answer(requests)
        if self.choose.random() < 0.3:
            # The handler's requests are its own.
            for call in requests.approvals:
                call.args = {'value': 'changed'}
            requests.approvals.clear()
        return results

    def capability(self) -> Any:
        """Make a capability that asks for any place, answers like a handler, and may approve what it isn't asked for."""
        seen: set[str] = set()

        def handle(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults | None:
            asked = {call.tool_call_id for call in [*requests.approvals, *requests.calls]}
            results = self.answer(requests)
            if self.choose.random() < 0.5:
                others = {
                    part.tool_call_id for parts in self.responses for part in parts if isinstance(part, ToolCallPart)
                }
                results.approvals.update(dict.fromkeys((others | seen) - asked, True))
            seen.update(asked)
            return results

        position, wraps = self.choose.choice(
            [
                (None, ()),
                ('innermost', ()),
                ('outermost', ()),
                (None, ('HandleDeferredToolCalls',)),
                ('outermost', ('HandleDeferredToolCalls',)),
                ('outermost', ('AbstractCapability',)),
            ]
        )
        return handling_deferred_calls(handle, position, wraps)

    @property
    def model(self) -> FunctionModel:
        """Make the model that gives the responses in turn."""

        async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            done = sum(isinstance(message, ModelResponse) for message in messages)
            return ModelResponse(
                parts=[*self.responses[done]] if done < len(self.responses) else [TextPart('all done')]
            )

        async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
            for index, part in enumerate((await respond(messages, info)).parts):
                if isinstance(part, ToolCallPart):
                    args = part.args if isinstance(part.args, str) else part.args_as_json_str()
                    yield {index: DeltaToolCall(name=part.tool_name, json_args=args, tool_call_id=part.tool_call_id)}
                elif isinstance(part, TextPart):
                    yield part.content

        return FunctionModel(respond, stream_function=stream)

    def answer_for(self, ctx: Any, requests: Any) -> Any:
        return self.answer(requests)

    async def play(self) -> None:
        """Run until there is a text, answering by hand what is left over."""
        # Two that want to be around all others can't both be.
        capabilities = [self.capability() for _ in range(self.choose.choice([0, 0, 1]))]
        if self.choose.random() < 0.3:
            capabilities.append(handling_deferred_calls(self.answer_for))
        self.choose.shuffle(capabilities)
        agent: Agent[Any, Any] = Agent(
            self.model,
            toolsets=[self.toolset],
            output_type=OUTPUTS,
            end_strategy=self.choose.choice(['early', 'exhaustive']),
            capabilities=capabilities,
        )
        given: dict[str, Any] = {'user_prompt': 'go'}
        for _ in range(20):
            handler = self.handler if self.choose.random() < 0.6 else None
            way = self.choose.choice(['run', 'nested', 'run_stream', 'run_stream', 'iter', 'run_stream_events'])
            output, messages = await run_by(way, agent, deferred_tool_handler=handler, **given)
            left = Counter[str]()
            if isinstance(output, DeferredToolRequests):
                left.update(call.tool_call_id for call in [*output.approvals, *output.calls])
            assert left + told(messages) == called(messages), 'a call is lost, or told twice'
            if not isinstance(output, DeferredToolRequests):
                return
            results = self.answer(output, all_of_them=True)
            given = {'message_history': messages, 'deferred_tool_results': results}
        raise AssertionError('it never ends')


async def run_by(way: str, agent: Agent[Any, Any], **options: Any) -> tuple[Any, list[ModelMessage]]:
    """Run an agent by one of its methods, and return its output and all messages."""
    if way == 'run_stream':
        async with agent.run_stream(**options) as stream:
            return await stream.get_output(), stream.all_messages()
    result: Any = None
    if way == 'nested':
        parent = Agent(calling(['delegate']), deferred_tool_handler=options.pop('deferred_tool_handler'))

        @parent.tool
        async def delegate(ctx: RunContext[Any], value: str) -> None:
            """Pass the handler on."""
            nonlocal result
            result = await agent.run(**options, deferred_tool_handler=ctx.deferred_tool_handler)

        await parent.run('go')
        return result.output, result.all_messages()
    if way == 'iter':
        async with agent.iter(**options) as agent_run:
            async for node in agent_run:
                if Agent.is_model_request_node(node) or Agent.is_call_tools_node(node):
                    async with node.stream(agent_run.ctx) as events:
                        async for _ in events:
                            pass
        result = agent_run.result
    elif way == 'run_stream_events':
        async with stream_events(agent, options.pop('user_prompt', None), **options) as events:
            async for event in events:
                if isinstance(event, AgentRunResultEvent):
                    result = cast(Any, event).result
    else:
        result = await agent.run(**options)
    return result.output, result.all_messages()


def value_of(call: ToolCallPart) -> str:
    """Return the argument of a call. What is returned without a handler may not have been validated."""
    try:
        return str(call.args_as_dict().get('value'))
    except ValueError:
        return ''


def called(messages: list[ModelMessage]) -> Counter[str]:
    """Count the calls by their ids."""
    return Counter(
        part.tool_call_id for each in messages if isinstance(each, ModelResponse) for part in each.tool_calls
    )


def told(messages: list[ModelMessage]) -> Counter[str]:
    """Count what the model was told of calls, by their ids."""
    parts = [part for each in messages if isinstance(each, ModelRequest) for part in each.parts]
    return Counter(
        part.tool_call_id
        for part in parts
        if isinstance(part, ToolReturnPart) or (isinstance(part, RetryPromptPart) and part.tool_name)
    )


@pytest.mark.parametrize('chunk', range(CHUNKS))
async def test_b26_random_scripts_run_what_was_approved_and_lose_nothing(chunk: int) -> None:
    ended = 0
    for seed in range(chunk * SCRIPTS, (chunk + 1) * SCRIPTS):
        script = Script(seed)
        try:
            await script.play()
            ended += 1
        except (UnexpectedModelBehavior, UserError) as error:
            assert any(text in str(error) for text in REFUSED), f'seed {seed}: {error}'
        except AssertionError as error:
            raise AssertionError(f'seed {seed}: {error}') from error
        # The model never makes a call again.
        assert max(script.looked.values(), default=0) <= 1, f'seed {seed}'
    assert ended > SCRIPTS / 4
