"""A Python REPL: it keeps its variables during a run, and a sub-agent begins with a snapshot of them."""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import signal
import sys
import tempfile
import uuid
from asyncio.subprocess import PIPE, STDOUT, Process
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from pydantic_ai import Agent, FunctionToolset, RunContext, toolsets
from pydantic_ai.models import Model
from typing_extensions import Self

from examples.support import call, run_main, scripts

# --8<-- [start:toolset]
WORKER = Path(__file__).with_name('repl_worker.py')
GRACE = 1.0
"""The seconds that code has for ending when it's interrupted."""


class ReplToolset(FunctionToolset[Any]):
    """Runs Python code in a process of its own, which keeps the variables until the run ends.

    A sub-agent has another process, which begins with a copy of the variables. This isn't a sandbox: the code may do whatever
    the application may.
    """

    stateful = True

    def __init__(self, *, time_limit: float = 30, max_output: int = 10_000) -> None:
        """Make a toolset whose process is started by the first call.

        Args:
            time_limit: The seconds that a call may take. Then the code is interrupted, and if it goes on, killed.
            max_output: The characters of output that a call returns. What is longer loses its middle.
        """
        super().__init__([self.run_python])
        self.time_limit = time_limit
        self.max_output = max_output
        self._entered = False
        self._parent: ReplToolset | None = None
        self._process: Process | None = None
        self._lock = asyncio.Lock()
        self._note = ''

    def copy(self) -> Self:
        """Make a toolset that starts a process of its own, without variables."""
        return type(self)(time_limit=self.time_limit, max_output=self.max_output)

    def for_sub_agent(self, ctx: RunContext[Any]) -> Self:
        """Make a toolset that starts a process of its own, with the variables that this one has when it's entered."""
        child = self.copy()
        child._parent = self
        return child

    async def __aenter__(self) -> Self:
        """Get ready for calls, and in a sub-agent take the variables of its parent over."""
        self._entered = True
        if self._parent:
            try:
                self._note = await self._take_over(self._parent)
            except BaseException:
                await self.__aexit__()
                raise
        return self

    async def __aexit__(self, *args: object) -> None:
        """Kill the process, and those that its code has started."""
        self._entered = False
        await self._end()

    async def run_python(self, code: str) -> str:
        """Run Python code, and return what it prints and the value of its last expression. Variables are kept."""
        output = await self._ask('run', code)
        note, self._note = self._note, ''
        return (note + output).rstrip('\n')

    async def _take_over(self, parent: ReplToolset) -> str:
        """Give the process the variables of its parent's process, and return what to say about that."""
        # From process to process: reading a pickle runs code, which the application must not.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / 'variables'
            said = await parent._ask('save', str(path))
            if not path.exists():
                return f'{said}[The variables could not be taken over.]\n'
            return said + await self._ask('load', str(path)) + self._note

    async def _ask(self, do: str, argument: str) -> str:
        """Let the process do something, and return what it prints. The note says what else has happened."""
        async with self._lock:
            if not self._entered:
                raise RuntimeError(f'{self.label} runs no code outside of `async with`. Runs enter a copy of it.')
            process = self._process or await self._start()
            end = uuid.uuid4().hex
            assert process.stdin and process.stdout
            process.stdin.write(json.dumps({'do': do, 'argument': argument, 'end': end}).encode() + b'\n')
            output = Output(self.max_output)
            reading = asyncio.ensure_future(output.read(process.stdout, until=end.encode()))
            lost = 'The call was cancelled, and the process killed.'
            try:
                await asyncio.wait([reading], timeout=self.time_limit)
                if not reading.done():
                    self._note = f'[Interrupted after {self.time_limit:g} s. The variables are kept.]\n'
                    with suppress(ProcessLookupError):
                        process.send_signal(signal.SIGINT)
                    await asyncio.wait([reading], timeout=GRACE)
                if not reading.done():
                    lost = f'Killed after {self.time_limit + GRACE:g} s.'
                else:
                    lost = '' if reading.result() else 'The process has ended.'
            finally:
                if lost:
                    reading.cancel()
                    self._note = f'[{lost} All variables are gone.]\n'
                    await self._end()
            return output.text()

    async def _start(self) -> Process:
        # In a session of its own, Ctrl-C in a terminal doesn't reach it, and what its code starts can be killed with it.
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable, '-I', WORKER, stdin=PIPE, stdout=PIPE, stderr=STDOUT, start_new_session=True
        )
        assert process.stdout
        try:
            if not await (output := Output(self.max_output)).read(process.stdout, until=b'ready'):
                raise RuntimeError(f'The process of the REPL does not start. It says:\n{output.text()}')
        except BaseException:
            await self._end()
            raise
        return process

    async def _end(self) -> None:
        """Kill the process and those that its code has started. The next call starts another one."""
        process, self._process = self._process, None
        if process:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            # This waits for all who have its output, which may be a process that is no longer in its session.
            with anyio.move_on_after(GRACE, shield=True):
                await process.wait()


class Output:
    """What a process prints: its beginning and its end, and how much was cut between them."""

    def __init__(self, limit: int) -> None:
        """Collect at most as many characters as the limit allows."""
        self.half = limit // 2
        self.beginning = self.ending = ''
        self.cut = 0

    def text(self) -> str:
        """Return what was collected, with a mark where something was cut."""
        mark = f'\n[{self.cut} characters were cut here]\n' if self.cut else ''
        return self.beginning + mark + self.ending

    async def read(self, stream: asyncio.StreamReader, *, until: bytes) -> bool:
        """Read a stream until a mark, and return whether it came before the stream's end."""
        decoder = codecs.getincrementaldecoder('utf-8')('replace')
        rest = b''
        try:
            while chunk := await stream.read(2**16):
                rest, mark, _ = (rest + chunk).partition(until)
                if mark:
                    return True
                # The mark may have begun.
                sure = max(0, len(rest) + 1 - len(until))
                self._add(decoder.decode(rest[:sure]))
                rest = rest[sure:]
            return False
        finally:
            self._add(decoder.decode(rest, final=True))

    def _add(self, text: str) -> None:
        room = self.half - len(self.beginning)
        self.beginning += text[:room]
        self.ending += text[room:]
        if (excess := len(self.ending) - self.half) > 0:
            self.ending = self.ending[excess:]
            self.cut += excess


# --8<-- [end:toolset]

# --8<-- [start:agents]
repl = ReplToolset()
analyst = Agent('openai:gpt-5-mini', name='analyst', toolsets=[repl], defer_model_check=True)
agent = Agent('openai:gpt-5-mini', name='agent', toolsets=[repl], defer_model_check=True)


@agent.tool
async def ask_analyst(ctx: RunContext[Any], question: str) -> str:
    """Let the analyst answer a question. It has a copy of the variables."""
    result = await analyst.run(question, usage=ctx.usage)
    print(f'The analyst answers: {result.output}')
    return result.output


# --8<-- [end:agents]


# --8<-- [start:across]
async def ask_twice() -> None:
    """Set a variable in one run, and find it in the next."""
    async with toolsets.ToolsetScope(repl) as scope:
        await agent.run(FIRST, toolsets=[scope])
        result = await agent.run(SECOND, toolsets=[scope])
    print(f'In the next run, y is: {result.output}')


# --8<-- [end:across]

QUESTION = 'Let x be 42, and have the analyst double it. What is x for you after that?'
DELEGATED = 'Double x, in place.'
FIRST, SECOND = 'Let y be 7 in Python.', 'What is y in Python?'
SCRIPT = scripts(
    {
        QUESTION: [
            call('run_python', code='x = 42\ndef double(n):\n    return 2 * n'),
            call('ask_analyst', question=DELEGATED),
            call('run_python', code='x'),
        ],
        DELEGATED: [call('run_python', code='x = double(x)\nx')],
        FIRST: [call('run_python', code='y = 7')],
        SECOND: [call('run_python', code='y')],
    }
)


async def main(model: Model | str) -> None:
    """Set a variable, let a sub-agent change its copy of it, and find it unchanged; then keep one across runs."""
    with agent.override(model=model), analyst.override(model=model):
        result = await agent.run(QUESTION)
        print(f'For the agent, it is: {result.output}')
        await ask_twice()


if __name__ == '__main__':
    run_main(main, SCRIPT)
