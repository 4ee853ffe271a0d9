"""The same run in other agent frameworks: their agents, with a model in the process that calls a tool once.

None of these packages is needed for anything else. They are imported by name, so that types are checked without them.
"""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any, ClassVar

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


def openai_agents(number: int) -> Call:
    """A run of the `Agent` of openai-agents."""
    agents: Any = import_module('agents')
    responses: Any = import_module('openai.types.responses')
    agents.set_tracing_disabled(True)

    class Model(agents.Model):
        async def get_response(self, *, input: Any, **_: Any) -> Any:
            if 'output' in input[-1]:
                text = responses.ResponseOutputText(text='done', type='output_text', annotations=[])
                message = responses.ResponseOutputMessage
                output = message(id='m', content=[text], role='assistant', status='completed', type='message')
            else:
                call = responses.ResponseFunctionToolCall
                output = call(call_id='a', name='tool_0', arguments=json.dumps({'value': 1}), type='function_call')
            return agents.ModelResponse(output=[output], usage=agents.Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    tools = [agents.function_tool(method) for method in methods(number)]
    agent = agents.Agent(name='agent', model=Model(), tools=tools)
    return lambda: agents.Runner.run(agent, 'go')


def smolagents(number: int) -> Call:
    """A run of the `ToolCallingAgent` of smolagents, whose tools can't be made of a function without a file."""
    package: Any = import_module('smolagents')
    models: Any = import_module('smolagents.models')

    class Tool(package.Tool):
        description = 'Look something up.'
        inputs: ClassVar = {
            'value': {'type': 'integer', 'description': 'What to look up.'},
            'text': {'type': 'string', 'description': 'What to put before it.', 'nullable': True},
        }
        output_type = 'string'

        def __init__(self, name: str) -> None:
            self.name = name
            package.Tool.__init__(self)

        def forward(self, value: int, text: str = 'nothing') -> str:
            return text

    class Model(package.Model):
        def generate(self, messages: Any, *_: Any, **__: Any) -> Any:
            answered = any(message.role == models.MessageRole.TOOL_RESPONSE for message in messages)
            name, arguments = ('final_answer', {'answer': 'done'}) if answered else ('tool_0', {'value': 1})
            function = models.ChatMessageToolCallFunction(name=name, arguments=arguments)
            call = models.ChatMessageToolCall(id='a', type='function', function=function)
            return models.ChatMessage(role='assistant', tool_calls=[call])

    tools = [Tool(method.__name__) for method in methods(number)]
    agent = package.ToolCallingAgent(tools, Model(), verbosity_level=package.LogLevel.OFF)

    async def call() -> Any:
        return agent.run('go')

    return call


def adk(number: int) -> Call:
    """A run of Google's ADK in a new session, which keeps the conversation."""
    types: Any = import_module('google.genai.types')
    response_of: Any = import_module('google.adk.models').LlmResponse
    usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=1, candidates_token_count=1)

    class Model(import_module('google.adk.models').BaseLlm):
        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
            if llm_request.contents[-1].parts[0].function_response:
                part = types.Part(text='done')
            else:
                part = types.Part(function_call=types.FunctionCall(name='tool_0', args={'value': 1}))
            yield response_of(content=types.Content(role='model', parts=[part]), usage_metadata=usage)

    agent = import_module('google.adk.agents').LlmAgent(name='agent', model=Model(model='model'), tools=methods(number))
    runner = import_module('google.adk.runners').InMemoryRunner(agent, app_name='app')
    message = types.Content(role='user', parts=[types.Part(text='go')])

    async def call() -> None:
        sessions = runner.session_service
        session = await sessions.create_session(app_name='app', user_id='user')
        async for _ in runner.run_async(user_id='user', session_id=session.id, new_message=message):
            pass
        await sessions.delete_session(app_name='app', user_id='user', session_id=session.id)

    return call


WORKLOADS: dict[str, Workload] = {
    'adk': adk,
    'agno': agno,
    'langgraph': langgraph,
    'openai-agents': openai_agents,
    'smolagents': smolagents,
    'strands': strands,
}
