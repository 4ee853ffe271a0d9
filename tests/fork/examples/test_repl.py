from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic_ai import Agent, ModelRequest, ToolReturnPart
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.toolsets import ToolsetScope

from examples import repl
from examples.repl import ReplToolset
from examples.support import Step, call, script

from .processes import Processes

pytestmark = pytest.mark.anyio


def run(code: str) -> Any:
    """Make a call of the REPL."""
    return call('run_python', code=code)


async def outputs(agent: Agent[Any, str], *steps: Step, scope: ToolsetScope | None = None) -> list[str]:
    """Run an agent on a script, and return what its tool calls returned."""
    result = await agent.run('go', model=script(*steps), toolsets=[scope] if scope else None)
    parts = [part for message in result.all_messages() if isinstance(message, ModelRequest) for part in message.parts]
    return [part.model_response_str() for part in parts if isinstance(part, ToolReturnPart)]


async def outputs_of(*cells: str, **options: Any) -> list[str]:
    """Run pieces of code, one after another, and return what each printed."""
    return await outputs(Agent(toolsets=[ReplToolset(**options)]), *map(run, cells))


def family(*child_cells: str, toolset: ReplToolset | None = None) -> Agent[None, str]:
    """Make an agent that delegates to another one with the same toolset, which runs this code."""
    toolset = toolset or ReplToolset()
    child = Agent(script(*map(run, child_cells)), toolsets=[toolset])
    agent = Agent(toolsets=[toolset])

    @agent.tool_plain
    async def delegate() -> str:
        return '; '.join(await outputs(child, *map(run, child_cells)))

    return agent


async def test_main_prints_what_each_agent_has(capsys: pytest.CaptureFixture[str]) -> None:
    await repl.main(repl.SCRIPT)

    assert capsys.readouterr().out.splitlines() == [
        'The analyst answers: 84',
        'For the agent, it is: 42',
        'In the next run, y is: 7',
    ]


async def test_variables_functions_and_imports_are_kept_within_a_run_and_not_for_the_next() -> None:
    agent = Agent(toolsets=[ReplToolset()])
    steps = run('import math\nx = 42'), run('def root():\n    return math.sqrt(x)'), run('x = 49\nroot()')

    assert await outputs(agent, *steps) == ['', '', '7.0']
    assert (await outputs(agent, run('x')))[0].splitlines()[-1] == "NameError: name 'x' is not defined"


async def test_runs_in_a_scope_keep_variables_and_a_sub_agent_has_a_copy(processes: Processes) -> None:
    repl = ReplToolset()
    agent = family('x += 1; x', toolset=repl)
    async with ToolsetScope(repl) as scope:
        assert await outputs(agent, run('x = 42'), scope=scope) == ['']
        with pytest.raises(UnexpectedModelBehavior):
            await outputs(agent, run('x += 100'), call('no such tool'), call('no such tool'), scope=scope)

        assert await outputs(agent, call('delegate'), run('x'), scope=scope) == ['143', '142']
        assert len(processes.running()) == 1
    assert processes.running() == {}


@asynccontextmanager
async def cancelled_when_there(path: Path) -> AsyncGenerator[None]:
    """Cancel what the body does once code has written a file."""

    async def cancel() -> None:
        while not path.exists():
            await asyncio.sleep(0.01)
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel)
        yield


async def test_run_in_a_scope_is_told_that_the_cancelled_one_before_lost_the_variables(tmp_path: Path) -> None:
    repl = ReplToolset()
    agent = Agent(toolsets=[repl])
    async with ToolsetScope(repl) as scope:
        await outputs(agent, run('x = 42'), scope=scope)
        async with cancelled_when_there(tmp_path / 'here'):
            await outputs(
                agent, run(f'import time; open({str(tmp_path / "here")!r}, "w"); time.sleep(600)'), scope=scope
            )

        message = '[The call was cancelled, and the process killed. All variables are gone.]'
        assert await outputs(agent, run('"x" in globals()'), scope=scope) == [f'{message}\nFalse']


async def test_runs_at_once_have_their_own_variables() -> None:
    agent = Agent(toolsets=[ReplToolset()])

    assert await asyncio.gather(*(outputs(agent, run(f'x = {n}'), run('x')) for n in range(3))) == [
        ['', str(n)] for n in range(3)
    ]


async def test_calls_at_once_take_turns() -> None:
    cells = [run(f'import time; print({n}); time.sleep(0.05); print({n})') for n in range(3)]

    assert await outputs(Agent(toolsets=[ReplToolset()]), cells) == ['0\n0', '1\n1', '2\n2']


@pytest.mark.parametrize(
    ('code', 'output'),
    [
        ('print(1)\n2\n3', '1\n3'),
        ('None', ''),
        ('', ''),
        ('"a"', "'a'"),
        ('_ + 1', '4'),
        ('import os; print("before"); os.system("echo within") and None; print("after")', 'before\nwithin\nafter'),
        ('import sys; sys.stderr.write("warning\\n") and None', 'warning'),
        ('print("ä\\ud800")', 'ä\\ud800'),
        ('class A: pass\nA', "<class '__main__.A'>"),
    ],
)
async def test_output_is_what_a_repl_shows(code: str, output: str) -> None:
    assert await outputs_of('1 + 2', code) == ['3', output]


@pytest.mark.parametrize(
    ('code', 'lines'),
    [
        (
            'def f(n):\n    return 1 / n\nf(0)',
            [
                'Traceback (most recent call last):',
                '  File "<cell 1>", line 3, in <module>',
                '    f(0)',
                '  File "<cell 1>", line 2, in f',
                '    return 1 / n',
                'ZeroDivisionError: division by zero',
            ],
        ),
        ('x = = 1', ['  File "<cell 1>", line 1', '    x = = 1', 'SyntaxError: invalid syntax']),
        (
            'raise SystemExit(3)',
            [
                'Traceback (most recent call last):',
                '  File "<cell 1>", line 1, in <module>',
                '    raise SystemExit(3)',
                'SystemExit: 3',
            ],
        ),
    ],
    ids=['in a function', 'in the syntax', 'at the top'],
)
async def test_error_is_shown_with_the_lines_of_the_code(code: str, lines: list[str]) -> None:
    [shown] = await outputs_of(code)

    assert [line for line in shown.splitlines() if line.strip(' ~^')] == lines


async def test_code_that_takes_too_long_is_interrupted_and_variables_are_kept() -> None:
    _, interrupted, x = await outputs_of('x = 42', 'print("on")\nwhile True: pass', 'x', time_limit=1)

    first, output, *_, last = interrupted.splitlines()
    assert first == '[Interrupted after 1 s. The variables are kept.]'
    assert (output, last, x) == ('on', 'KeyboardInterrupt', '42')


STUBBORN = """\
import time
print('on')
while True:
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        pass
"""


async def test_code_that_ignores_the_interrupt_is_killed_and_variables_are_gone(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repl, 'GRACE', 0.2)
    async with ReplToolset(time_limit=1) as toolset:
        await toolset.run_python('x = 42')

        assert await toolset.run_python(STUBBORN) == '[Killed after 1.2 s. All variables are gone.]\non'
        assert processes.running() == {}
        assert await toolset.run_python('"x" in globals()') == 'False'


async def test_code_that_ends_the_process_is_told_that_variables_are_gone() -> None:
    code = 'x = 42; print("on"); import os; os._exit(3)'

    assert await outputs_of(code, '"x" in globals()') == [
        '[The process has ended. All variables are gone.]\non',
        'False',
    ]


async def test_call_that_is_cancelled_leaves_nothing_for_the_next(tmp_path: Path) -> None:
    async with ReplToolset() as toolset:
        await toolset.run_python('')
        async with cancelled_when_there(tmp_path / 'here'):
            await toolset.run_python(
                f'print("on"); import time; open({str(tmp_path / "here")!r}, "w"); time.sleep(600)'
            )

        message = '[The call was cancelled, and the process killed. All variables are gone.]'
        assert await toolset.run_python('1') == f'{message}\n1'
        assert await toolset.run_python('2') == '2'


async def test_output_beyond_the_limit_loses_its_middle_and_says_how_many_characters() -> None:
    code = 'print("ä" * 50 + "ö" * 900 + "ü" * 49)'

    assert await outputs_of(code, code.replace('900', '0'), max_output=100) == [
        'ä' * 50 + '\n[900 characters were cut here]\n' + 'ü' * 49,
        'ä' * 50 + 'ü' * 49,
    ]


async def test_sub_agent_begins_with_the_variables_and_its_changes_stay_with_it() -> None:
    agent = family('x, double(x)', 'x = 1; numbers.append(2); x, double(x), numbers, numbers is same')

    steps = run('x = 42; numbers = same = [1]\ndef double(n): return 2 * n'), call('delegate'), run('x, numbers')
    assert await outputs(agent, *steps) == ['', '(42, 84); (1, 2, [1, 2], True)', '(42, [1])']


async def test_sub_agents_at_once_have_their_own_variables() -> None:
    agent = family('x += 1; x')

    assert await outputs(agent, run('x = 42'), [call('delegate'), call('delegate')]) == ['', '43', '43']


async def test_variables_that_cannot_be_pickled_are_named_to_the_sub_agent_once() -> None:
    agent = family('x', '"lock" in globals()')

    steps = run('import threading; x = 42; lock = threading.Lock(); numbers = (n for n in [1])'), call('delegate')
    assert await outputs(agent, *steps) == [
        '',
        '[These variables could not be taken over, since they cannot be pickled: lock, numbers]\n42; False',
    ]


SLEEPER = 'import subprocess; sleeper = subprocess.Popen(["sleep", "60"]); '


async def succeed(agent: Agent[None, str], processes: Processes) -> None:
    await agent.run('go', model=script(run(SLEEPER), call('delegate')))


async def fail(agent: Agent[None, str], processes: Processes) -> None:
    with pytest.raises(UnexpectedModelBehavior):
        await agent.run('go', model=script(run(SLEEPER), call('no such tool'), call('no such tool')))


async def be_cancelled(agent: Agent[None, str], processes: Processes) -> None:
    run_ = asyncio.ensure_future(agent.run('go', model=script(run(SLEEPER + 'sleeper.wait()'))))
    while len(processes.running()) < 2:
        await asyncio.sleep(0.02)
    run_.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run_


async def be_in_a_cancelled_scope(agent: Agent[None, str], processes: Processes) -> None:
    async with anyio.create_task_group() as group:

        async def run_() -> None:
            await agent.run('go', model=script(run(SLEEPER + 'sleeper.wait()')))

        group.start_soon(run_)
        while len(processes.running()) < 2:
            await asyncio.sleep(0.02)
        group.cancel_scope.cancel()


@pytest.mark.parametrize('end', [succeed, fail, be_cancelled, be_in_a_cancelled_scope])
async def test_run_ends_and_no_process_is_left(
    end: Callable[[Agent[None, str], Processes], Awaitable[None]], processes: Processes
) -> None:
    await end(family('1'), processes)

    await processes.are_gone()


async def test_toolset_that_is_not_entered_starts_no_process(processes: Processes) -> None:
    toolset = ReplToolset()
    async with toolset:
        await toolset.run_python('1')

    with pytest.raises(RuntimeError, match='ReplToolset runs no code outside of `async with`'):
        await toolset.run_python('1')
    assert processes.running() == {}
