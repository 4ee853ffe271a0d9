"""A process that runs an agent in a workflow, and hangs in it until it's killed; or one that recovers that workflow.

What it does is written to a file, line by line, as what a killed process prints may be lost.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from dbos import DBOS, DBOSConfig, SetWorkflowID, WorkflowHandle
from pydantic_ai import (
    Agent,
    AgentRunResult,
    FunctionToolset,
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.durable_exec import dbos as durable_exec_dbos
from pydantic_ai.durable_exec.dbos import DBOSAgent
from pydantic_ai.models.function import AgentInfo, FunctionModel
from typing_extensions import Self


class Shop(FunctionToolset[None]):
    """Keeps a basket, changed by a tool whose results aren't recorded, and notes, taken by one whose results are."""

    stateful = True

    def __init__(self, journal: Path, recovering: bool):
        super().__init__(id='shop')
        # Its calls aren't recorded by Prefect either, in both ways to say so.
        self.add_function(self.add, metadata={'prefect': False})
        self.add_function(self.note)
        self.add_function(self.pay)
        self.journal = journal
        self.recovering = recovering
        self.basket: list[str] = []
        self.notes: list[str] = []

    def copy(self) -> Self:
        return type(self)(self.journal, self.recovering)

    async def __aenter__(self) -> Self:
        write(self.journal, 'enter')
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None = None, *args: object) -> None:
        write(self.journal, f'exit {exc_type and exc_type.__name__}')

    async def add(self, item: str) -> list[str]:
        """Put an item into the basket."""
        write(self.journal, 'add')
        self.basket.append(item)
        return list(self.basket)

    @DBOS.step()
    async def note(self, text: str) -> list[str]:
        """Take a note."""
        write(self.journal, 'note')
        self.notes.append(text)
        return list(self.notes)

    @DBOS.step()
    async def pay(self) -> str:
        """Pay."""
        write(self.journal, 'pay')
        while not self.recovering:
            await asyncio.sleep(1)  # until killed
        return f'paid for {self.basket} with {self.notes}'


def write(journal: Path, line: str) -> None:
    with journal.open('a') as file:
        file.write(f'{line}\n')


def shop(journal: Path, recovering: bool, **options: Any) -> Agent[None, str]:
    """Make an agent whose model calls each tool once, and answers with what they returned."""
    script = [ToolCallPart('add', {'item': 'tea'}), ToolCallPart('note', {'text': 'green'}), ToolCallPart('pay', {})]

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = sum(isinstance(message, ModelResponse) for message in messages)
        write(journal, f'request {step}')
        if step < len(script):
            return ModelResponse(parts=[script[step]])
        returns = [part.content for m in messages for part in m.parts if isinstance(part, ToolReturnPart)]
        return ModelResponse(parts=[TextPart(json.dumps(returns))])

    return Agent(FunctionModel(respond), name='shop', toolsets=[Shop(journal, recovering)], **options)


def dbos(way: str, journal: Path, recovering: bool, url: str) -> str:
    # What DBOS recovers at its launch are the workflows of the same version and executor.
    config: DBOSConfig = {'name': 'fork', 'application_version': '1', 'executor_id': 'worker', 'log_level': 'ERROR'}
    DBOS(config={**config, 'system_database_url': url})
    workflow: Callable[..., AgentRunResult[str]]
    if way == 'wrapper':
        workflow = DBOSAgent(shop(journal, recovering)).dbos_wrapped_run_sync_workflow
    else:
        durability: Any = cast(Any, durable_exec_dbos).DBOSDurability()
        agent = shop(journal, recovering, capabilities=[durability])

        @DBOS.workflow()
        def run(prompt: str, *, deps: None) -> AgentRunResult[str]:
            return agent.run_sync(prompt, deps=deps)

        workflow = run
    DBOS.launch()
    if recovering:
        handle: WorkflowHandle[AgentRunResult[str]] = DBOS.retrieve_workflow('crashing')
    else:
        with SetWorkflowID('crashing'):
            handle = DBOS.start_workflow(workflow, 'A tea, please', deps=None)
    output = handle.get_result().output
    DBOS.destroy()
    return output


async def prefect(way: str, journal: Path, recovering: bool) -> str:
    # DBOS is also tested where Prefect isn't installed.
    from prefect import flow, get_client
    from prefect.flow_engine import run_flow_async
    from pydantic_ai.durable_exec import prefect as durable_exec_prefect
    from pydantic_ai.durable_exec.prefect import PrefectAgent

    # Its tools are tasks, unless that is turned off.
    agent: Any
    if way == 'wrapper':
        agent = PrefectAgent(shop(journal, recovering), tool_task_config_by_name={'add': None})
    else:
        durability: Any = cast(Any, durable_exec_prefect).PrefectDurability()
        agent = shop(journal, recovering, capabilities=[durability])

    @flow(flow_run_name=f'crashing-{way}')
    async def crashing() -> str:
        return (await agent.run('A tea, please')).output

    if not recovering:
        return await crashing()
    async with get_client() as client:
        runs = await client.read_flow_runs()
    (crashed,) = (run for run in runs if run.name == f'crashing-{way}')
    return cast(str, await run_flow_async(crashing, flow_run=crashed))


def main(engine: str, way: str, path: str, what: str, url: str) -> None:
    recovering = what == 'recover'
    if engine == 'dbos':
        print(dbos(way, Path(path), recovering, url))
    else:
        print(asyncio.run(prefect(way, Path(path), recovering)))


if __name__ == '__main__':
    main(*sys.argv[1:])
