"""An agent whose toolsets keep state, for a run that is killed and goes on, and the process that works on it.

`python -m durable_worker ENGINE WAY ADDRESS` does so, in this folder. What is called is written to the file that `JOURNAL` in the
environment names, line by line, as what a killed process prints may be lost. A worker of Temporal takes tasks from the queue `QUEUE`.

Without an address, a process imports all that is needed, and forks one that does the same for each line of its input, which is an address,
a journal and a file to print to, as JSON. It prints the ID of each.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any, cast

from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    FunctionToolset,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelRetry,
    RetryPromptPart,
    RunContext,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from typing_extensions import Self

QUEUE = os.environ.get('QUEUE', 'tests')
ID = 'run'


def write(line: str) -> None:
    with Path(os.environ['JOURNAL']).open('a') as file:
        file.write(f'{line}\n')


class Keeping(FunctionToolset[Any]):
    """A toolset that exports its state, and writes down each call that begins."""

    stateful = True

    def __init__(self, tools: list[Any], id: str):
        super().__init__(tools, id=id)
        self.entered = False

    def copy(self) -> Self:
        return type(self)()  # pyright: ignore[reportCallIssue]

    async def __aenter__(self) -> Self:
        self.entered = True
        return self

    async def __aexit__(self, *args: object) -> None:
        self.entered = False

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: Any) -> Any:
        assert self.entered
        write(f'{self.id} {ctx.tool_call_id}')
        await asyncio.sleep(random.random() / 50)
        return await super().call_tool(name, tool_args, ctx, tool)


class Desk(Keeping):
    """A REPL's variables, and a list of tasks that the instructions count."""

    def __init__(self):
        super().__init__([self.execute, self.plan], id='desk')
        self.variables: dict[str, int] = {}
        self.tasks: list[str] = []

    async def export_state(self) -> Any:
        return {'variables': self.variables, 'tasks': self.tasks}

    async def restore_state(self, state: Any) -> None:
        self.variables, self.tasks = dict(state['variables']), list(state['tasks'])

    async def get_instructions(self, ctx: RunContext[Any]) -> Any:
        return f'tasks: {len(self.tasks)}'

    async def execute(self, code: str) -> dict[str, int]:
        """Execute statements, and return all variables."""
        exec(code, {'__builtins__': {}}, self.variables)  # noqa: S102
        return dict(self.variables)

    async def plan(self, task: str) -> list[str]:
        """Plan a task, and return all tasks."""
        self.tasks.append(task)
        return list(self.tasks)


class Meter(Keeping):
    """A quota. A call that exceeds it is counted, too."""

    def __init__(self):
        super().__init__([self.spend], id='meter')
        self.spent = self.refused = 0

    async def export_state(self) -> Any:
        return [self.spent, self.refused]

    async def restore_state(self, state: Any) -> None:
        self.spent, self.refused = state

    async def spend(self, amount: int) -> str:
        """Spend something."""
        if self.spent + amount > 10:
            self.refused += 1
            raise ModelRetry(f'spent {self.spent}, refused {self.refused}')
        self.spent += amount
        return f'spent {self.spent}, refused {self.refused}'


SCRIPT: list[list[tuple[str, dict[str, Any]]]] = [
    [('execute', {'code': 'x = 1'})],
    [('plan', {'task': 'a'}), ('spend', {'amount': 4}), ('execute', {'code': 'y = x + 1'})],
    [('spend', {'amount': 7})],
    [('execute', {'code': 'x = x + y'}), ('plan', {'task': 'b'})],
    [('spend', {'amount': 5}), ('plan', {'task': 'c'}), ('plan', {'task': 'd'})],
    [('execute', {'code': 'z = x * y'}), ('spend', {'amount': 1})],
]
"""What the model calls, response by response."""

EXPECTED = {
    'results': [
        {'x': 1},
        ['a'],
        'spent 4, refused 0',
        {'x': 1, 'y': 2},
        'spent 4, refused 1',
        {'x': 3, 'y': 2},
        ['a', 'b'],
        'spent 9, refused 1',
        ['a', 'b', 'c'],
        ['a', 'b', 'c', 'd'],
        {'x': 3, 'y': 2, 'z': 6},
        'spent 10, refused 1',
    ],
    'instructions': ['tasks: 0', 'tasks: 0', 'tasks: 1', 'tasks: 1', 'tasks: 2', 'tasks: 4', 'tasks: 4'],
}
"""What a run that nobody kills returns."""


def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call what the script says, and then return what was returned and the instructions that were given."""
    step = sum(isinstance(message, ModelResponse) for message in messages)
    if step < len(SCRIPT):
        calls = [
            ToolCallPart(name, args, tool_call_id=f'{step}.{index}') for index, (name, args) in enumerate(SCRIPT[step])
        ]
        return ModelResponse(parts=calls)
    results = [
        part.content if isinstance(part, ToolReturnPart) else cast(str, part.content).split('\n')[0]
        for message in messages
        for part in message.parts
        if isinstance(part, ToolReturnPart | RetryPromptPart)
    ]
    instructions = [message.instructions for message in messages if isinstance(message, ModelRequest)]
    return ModelResponse(parts=[TextPart(json.dumps({'results': results, 'instructions': instructions}))])


def make_agent(**options: Any) -> Agent[Any, str]:
    """Make the agent."""
    return Agent(FunctionModel(respond), name='desk', toolsets=[Desk(), Meter()], retries=5, **options)


APPROVALS: list[list[tuple[str, dict[str, Any]]]] = [
    [('execute', {'code': 'x = 1'})],
    [('execute', {'code': 'y = x + 1'}), ('plan', {'task': 'send'})],
    [('plan', {'task': 'b'}), ('execute', {'code': 'x = 5'})],
]
"""What the model calls in two runs, of which the second begins when somebody has approved of sending something."""

APPROVED = [{'x': 1}, {'x': 1, 'y': 2}, ['send'], ['send', 'b'], {'x': 5}]
"""What these calls return: the second run has a copy of its own."""


def respond_for_approval(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call what is in `APPROVALS`, and then return what was returned."""
    step = sum(isinstance(message, ModelResponse) for message in messages)
    if step < len(APPROVALS):
        return ModelResponse(parts=[ToolCallPart(name, args) for name, args in APPROVALS[step]])
    parts = [part for message in messages for part in message.parts]
    return ModelResponse(
        parts=[TextPart(json.dumps([part.content for part in parts if isinstance(part, ToolReturnPart)]))]
    )


def make_agent_for_approval(**options: Any) -> Agent[Any, Any]:
    """Make an agent that asks before it sends something."""
    desk = Desk().approval_required(lambda ctx, tool_def, args: args.get('task') == 'send')
    model = FunctionModel(respond_for_approval)
    return Agent(model, name='approvals', toolsets=[desk], output_type=[str, DeferredToolRequests], **options)


TOOLSETS = {'execute': 'desk', 'plan': 'desk', 'spend': 'meter'}
"""Which toolset has a tool."""

CALLS = {
    toolset: [
        f'{step}.{index}'
        for step, calls in enumerate(SCRIPT)
        for index, (tool, _) in enumerate(calls)
        if TOOLSETS[tool] == toolset
    ]
    for toolset in ('desk', 'meter')
}
"""The calls to each toolset in their order."""


def check_journal(journal: Path) -> None:
    """Check that no call runs again once it was recorded, which it was when the next one of its toolset begins.

    A line `recorded` says of how many calls to a toolset it's known that they were recorded by then.
    """
    recorded = dict.fromkeys(CALLS, 0)
    for line in journal.read_text().splitlines():
        what, *words = line.split()
        if what == 'recorded':
            toolset, count = words
            recorded[toolset] = max(recorded[toolset], int(count))
        else:
            place = CALLS[what].index(words[0])
            assert place >= recorded[what], f'{line!r} runs again in\n{journal.read_text()}'
            recorded[what] = place


async def work_for_temporal(way: str, address: str) -> None:
    """Work on all workflows until killed."""
    from durable_workflow import for_client, for_worker
    from temporalio.client import Client
    from temporalio.worker import Worker

    client = await Client.connect(address, plugins=for_client())
    print('ready', flush=True)
    await Worker(client, task_queue=QUEUE, max_cached_workflows=0, **for_worker(way)).run()


async def work_for_dbos(way: str, address: str) -> None:
    """Begin a workflow, or recover it, and print what it returns."""
    from dbos import DBOS, SetWorkflowID
    from pydantic_ai.durable_exec import dbos

    config: Any = {'name': 'fork', 'application_version': '1', 'executor_id': 'worker', 'log_level': 'ERROR'}
    config['system_database_url'] = address
    DBOS(config=config)
    agent = make_agent(capabilities=[cast(Any, dbos).DBOSDurability()])

    @DBOS.workflow()
    async def workflow(prompt: str, *, deps: None) -> Any:
        return await agent.run(prompt)

    DBOS.launch()
    if await DBOS.list_workflows_async(workflow_id_prefix=ID):
        handle: Any = await DBOS.retrieve_workflow_async(ID)
    else:
        with SetWorkflowID(ID):
            handle = await DBOS.start_workflow_async(workflow, 'Go', deps=None)
    print((await handle.get_result()).output, flush=True)
    DBOS.destroy()


async def work_for_prefect(way: str, name: str) -> None:
    """Begin a flow, or go on with it, and print what it returns."""
    from prefect import flow, get_client
    from prefect.flow_engine import run_flow_async
    from pydantic_ai.durable_exec import prefect

    agent: Any = make_agent(capabilities=[cast(Any, prefect).PrefectDurability()])

    @flow(flow_run_name=name)
    async def desk() -> str:
        async with agent.iter('Go') as run:
            async for _ in run:
                pass
        return run.result.output

    async with get_client() as client:
        runs = [run for run in await client.read_flow_runs() if run.name == name]
    print(await (run_flow_async(desk, flow_run=runs[0]) if runs else desk()), flush=True)


def work(engine: str, way: str, address: str) -> None:
    """Work on a run, or on all workflows of Temporal."""
    if engine == 'temporal':
        asyncio.run(work_for_temporal(way, address))
    elif engine == 'dbos':
        asyncio.run(work_for_dbos(way, address))
    else:
        asyncio.run(work_for_prefect(way, address))


def fork(engine: str, way: str) -> None:
    """Fork a process that works for each line of the input, and end them all when that ends."""
    if engine == 'temporal':
        import durable_workflow
        from temporalio import worker

        _ = durable_workflow, worker
    else:
        importlib.import_module(f'pydantic_ai.durable_exec.{engine}')
    # The processes that have ended stay in the table until then, so that no ID is another process's.
    children: list[int] = []
    for line in sys.stdin:
        address, os.environ['JOURNAL'], output = json.loads(line)
        if child := os.fork():
            children.append(child)
            print(child, flush=True)
        else:
            os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), sys.stdout.fileno())
            work(engine, way, address)
            return
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == '__main__':
    if sys.argv[3:]:
        work(*sys.argv[1:])
    else:
        fork(*sys.argv[1:])
