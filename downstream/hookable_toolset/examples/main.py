"""One agent for all users: hooks, errors as values, an approval, tools with state, a sub-agent, and a session that goes on.

It runs on a scripted model, without a key: `python examples/main.py`.
"""

from __future__ import annotations

import asyncio
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext, ToolApproved
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from hookable_toolset import AgentContext, BaseTool, GlobalHooks, Session, SessionStore, Toolset

Context = RunContext[AgentContext]


class Stock(BaseTool):
    """Has no state, and fails for what the shop doesn't have."""

    name = 'stock'
    description = 'Say how many of an item there are.'

    def call(self, ctx: Context, item: str) -> int:
        return {'coffee': 7, 'tea': 3}[item]


class Basket(BaseTool):
    """Has state: each run works with a copy, and the next run of the same conversation goes on with it."""

    name = 'basket'
    description = 'Put an item into the basket.'
    stateful = True

    def __init__(self) -> None:
        self.items: list[str] = []

    def call(self, ctx: Context, item: str) -> str:
        self.items.append(item)
        return ', '.join(self.items)

    def get_instruction(self, ctx: Context) -> str:
        return f'The basket holds {len(self.items)} items.'

    def export_state(self) -> list[str]:
        return list(self.items)

    def restore_state(self, state: list[str]) -> None:
        self.items = list(state)


class Pay(BaseTool):
    """Asks before it acts, if the context says so."""

    name = 'pay'
    description = 'Pay what is in the basket.'

    def get_approval_metadata(self) -> dict[str, Any]:
        return {'currency': 'EUR'}

    def call(self, ctx: Context, amount: int) -> str:
        return f'paid {amount} EUR'


class AskHelper(BaseTool):
    """Delegates to another agent, which works with the same basket."""

    name = 'ask_helper'
    description = 'Have the helper fill the basket.'

    async def call(self, ctx: Context, item: str) -> str:
        result = await helper.run(f'basket {item}', deps=ctx.deps)
        ctx.deps.subagent_history['helper'] = result.all_messages()
        return f'the helper says: {result.output}'


def clean(ctx: Context, args: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    """A pre hook: changes arguments, and leaves a note for the other hooks of the call."""
    metadata['asked for'] = args['item']
    return args | {'item': args['item'].lower()}


def recover(ctx: Context, result: Any) -> Any:
    """A post hook: an error is a value."""
    return 'none at all' if isinstance(result, KeyError) else result


def monitor(ctx: Context, tool_name: str, result: Any, metadata: dict[str, Any]) -> Any:
    """A global post hook: sees what comes out of every call, and what the other hooks of the call have noted."""
    print(f'    {tool_name} -> {result!r}', metadata or '')
    return result


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tools that the prompt names, `stock Tea; pay 5`, one in each response, and then say what they returned."""
    calls: list[ToolCallPart] = []
    returned: list[str] = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                lines = [line.split() for line in str(part.content).split(';')]
                schemas = {tool.name: list(tool.parameters_json_schema['properties']) for tool in info.function_tools}
                calls = [ToolCallPart(name, {schemas[name][0]: word}) for name, word in lines]
                returned = []
            elif isinstance(part, ToolReturnPart):
                returned.append(str(part.content))
    return ModelResponse([calls[len(returned)] if len(returned) < len(calls) else TextPart(' / '.join(returned))])


# Built once, for all users.
shop: Toolset[AgentContext] = Toolset(
    tools=[Stock, Basket, Pay, AskHelper],
    pre_hooks={'stock': clean},
    post_hooks={'stock': recover},
    global_hooks=GlobalHooks(post=monitor),
    toolset_id='shop',
)
helper = Agent(FunctionModel(scripted), name='helper', deps_type=AgentContext, toolsets=[shop.subset(['basket'])])
agent = Agent(
    FunctionModel(scripted),
    name='shop',
    deps_type=AgentContext,
    toolsets=[shop],
    output_type=[str, DeferredToolRequests],
)


def approve_less(ctx: Context, requests: DeferredToolRequests) -> DeferredToolResults:
    """Answers inside the run; what it edits is what runs."""
    edited = {call.tool_call_id: ToolApproved(override_args={'amount': 4}) for call in requests.approvals}
    return DeferredToolResults(approvals=edited)  # type: ignore[arg-type]


async def main() -> None:
    """Show each in turn."""
    print('Hooks change arguments and results, and an error is a value:')
    print((await agent.run('stock COFFEE; stock milk', deps=AgentContext())).output)

    print('\nTwo users at once, each with a basket of their own, which goes on with their next prompt:')
    ada, grace = AgentContext(), AgentContext()
    outputs = await asyncio.gather(agent.run('basket tea', deps=ada), agent.run('basket coffee', deps=grace))
    print([result.output for result in outputs], (await agent.run('basket milk', deps=ada)).output)

    print('\nA sub-agent with a view of the toolset works with the basket of the run that called it:')
    print((await agent.run('basket tea; ask_helper milk; basket coffee', deps=AgentContext())).output)

    print('\nAn approval that is answered inside the run:')
    careful = AgentContext(need_user_approve_tools=['pay'])
    print((await agent.run('pay 5', deps=careful, deferred_tool_handler=approve_less)).output)

    print('\nA session that is opened again, as another process would, while it waits for an approval:')
    with tempfile.TemporaryDirectory() as folder:
        async with SessionStore(Path(folder) / 'sessions.db') as store:
            session = await Session.open(store, 'ada', AgentContext(need_user_approve_tools=['pay']))
            await session.run(agent, 'basket tea; pay 5', lambda call, metadata: None)
            again = await Session.open(store, 'ada')
            waiting = again.context.unanswered().approvals[0]
            print(f'revision {again.revision} waits for: {waiting.tool_name} {waiting.args}')
            print(await again.run(agent, None, lambda call, metadata: True))


if __name__ == '__main__':
    ArgumentParser(description=__doc__).parse_args()  # which refuses what it doesn't know, such as `--model`
    asyncio.run(main())
