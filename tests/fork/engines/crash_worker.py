"""A process that runs an agent in a DBOS workflow, and hangs in it until it's killed; or one that recovers that workflow.

What it does is written to a file, line by line, as what a killed process prints may be lost.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from dbos import DBOS, SetWorkflowID, WorkflowHandle
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
from pydantic_ai.durable_exec.dbos import DBOSAgent
from pydantic_ai.models.function import AgentInfo, FunctionModel
from typing_extensions import Self

WORKFLOW = 'crashing'


class Shop(FunctionToolset[None]):
    """Keeps a basket, changed by a tool that isn't a step, and notes, taken by one that is."""

    stateful = True

    def __init__(self, journal: Path, recovering: bool):
        super().__init__([self.add, self.note, self.pay])
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


def main(url: str, journal: Path, recovering: bool) -> None:
    script = [ToolCallPart('add', {'item': 'tea'}), ToolCallPart('note', {'text': 'green'}), ToolCallPart('pay', {})]

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = sum(isinstance(message, ModelResponse) for message in messages)
        write(journal, f'request {step}')
        if step < len(script):
            return ModelResponse(parts=[script[step]])
        returns = [part.content for m in messages for part in m.parts if isinstance(part, ToolReturnPart)]
        return ModelResponse(parts=[TextPart(json.dumps(returns))])

    DBOS(
        config={
            'name': 'fork',
            'system_database_url': url,
            'log_level': 'ERROR',
            # What DBOS recovers at its launch are the workflows of the same version and executor.
            'application_version': '1',
            'executor_id': 'worker',
        }
    )
    agent = DBOSAgent(Agent(FunctionModel(respond), name='shop', toolsets=[Shop(journal, recovering)]))
    DBOS.launch()
    if recovering:
        recovered: WorkflowHandle[AgentRunResult[str]] = DBOS.retrieve_workflow(WORKFLOW)
        print(recovered.get_result().output)
        DBOS.destroy()
    else:
        with SetWorkflowID(WORKFLOW):
            agent.run_sync('A tea, please')


if __name__ == '__main__':
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3] == 'recover')
