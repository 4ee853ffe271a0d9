"""The same run in other agent frameworks: their agents, with a model in the process that calls a tool once.

None of these packages is needed for anything else. They are imported by name, so that types are checked without them.
"""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

from workloads import Call, Workload, measure, methods  # a worker runs in this folder

__all__ = 'WORKLOADS', 'measure'


def agno(number: int) -> Call:
    """A run of agno's `Agent`."""
    response_of: Any = import_module('agno.models.response').ModelResponse

    class Model(import_module('agno.models.base').Model):
        async def ainvoke(self, messages: Any, **_: Any) -> Any:
            if messages[-1].role == 'tool':
                return response_of(role='assistant', content='done')
            function = {'name': 'tool_0', 'arguments': json.dumps({'value': 1})}
            return response_of(role='assistant', tool_calls=[{'id': 'a', 'type': 'function', 'function': function}])

        invoke = invoke_stream = ainvoke_stream = _parse_provider_response = _parse_provider_response_delta = ainvoke

    agent = import_module('agno.agent').Agent(model=Model(id='model'), tools=methods(number), telemetry=False)
    return lambda: agent.arun('go')


def langgraph(number: int) -> Call:
    """A run of the agent that LangChain builds on langgraph."""
    message: Any = import_module('langchain_core.messages')
    outputs: Any = import_module('langchain_core.outputs')

    class Model(import_module('langchain_core.language_models').BaseChatModel):
        _llm_type = 'model'

        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self

        def _generate(self, messages: Any, *_: Any, **__: Any) -> Any:
            if messages[-1].type == 'tool':
                answer = message.AIMessage('done')
            else:
                answer = message.AIMessage('', tool_calls=[{'name': 'tool_0', 'args': {'value': 1}, 'id': 'a'}])
            return outputs.ChatResult(generations=[outputs.ChatGeneration(message=answer)])

        async def _agenerate(self, messages: Any, *_: Any, **__: Any) -> Any:
            return self._generate(messages)

    agent = import_module('langchain.agents').create_agent(Model(), methods(number))
    return lambda: agent.ainvoke({'messages': [('user', 'go')]})


def strands(number: int) -> Call:
    """A run of a new strands `Agent`, which keeps the conversation, with the same tools."""

    class Model(import_module('strands.models').Model):
        def update_config(self, **_: Any) -> None: ...

        def get_config(self) -> Any:
            return {}

        def structured_output(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

        async def stream(self, messages: Any, *_: Any, **__: Any) -> Any:
            yield {'messageStart': {'role': 'assistant'}}
            if any('toolResult' in block for block in messages[-1]['content']):
                yield {'contentBlockStart': {'start': {}}}
                yield {'contentBlockDelta': {'delta': {'text': 'done'}}}
                reason = 'end_turn'
            else:
                yield {'contentBlockStart': {'start': {'toolUse': {'name': 'tool_0', 'toolUseId': 'a'}}}}
                yield {'contentBlockDelta': {'delta': {'toolUse': {'input': json.dumps({'value': 1})}}}}
                reason = 'tool_use'
            yield {'contentBlockStop': {}}
            yield {'messageStop': {'stopReason': reason}}

    tools = [import_module('strands').tool(method) for method in methods(number)]
    model = Model()
    return lambda: import_module('strands').Agent(model, tools=tools, callback_handler=None).invoke_async('go')


WORKLOADS: dict[str, Workload] = {'agno': agno, 'langgraph': langgraph, 'strands': strands}
