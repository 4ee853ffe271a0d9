"""Run `demo/scenarios.py` in the base's and in the fork's environment, both at the same time."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from tempfile import TemporaryFile
from typing import IO

from demo.errors import FailedScriptError, MissingEnvironmentError, UnusableModelError
from demo.results import ModelRefusedError, NotResultsError, Results, Scenario, read_environment, read_scenario

SCRIPT = Path(__file__).with_name('scenarios.py')


@dataclass(frozen=True)
class Side:
    """One of the two environments.

    Args:
        name: `base` or `fork`.
        python: Its interpreter.
        made_by: The command that makes it.
    """

    name: str
    python: Path
    made_by: str = 'make fork'


def check_side(side: Side) -> None:
    """Check that an environment is there.

    Raises:
        MissingEnvironmentError: It is not.
    """
    if not side.python.is_file():
        raise MissingEnvironmentError(
            f'There is no environment with the {side.name}: `{show(side.python)}` does not exist.',
            f'Make it with `{side.made_by}`, or name the interpreter of another with `--{side.name}`.',
        )


def run_sides(sides: Sequence[Side], model: str | None, step: Callable[[Side, int, int], None]) -> list[Results]:
    """Run the script in all environments at the same time.

    Args:
        sides: The environments.
        model: A real model's name, or `None` for the scripted one.
        step: Called with an environment, how many scenarios it has run, and how many there are; from several threads.

    Returns:
        What each showed, in the same order.

    Raises:
        MissingEnvironmentError: An interpreter does not start.
        UnusableModelError: One of them can't use the model.
        FailedScriptError: In one of them the script failed; the others are stopped.
    """
    with ThreadPoolExecutor(len(sides)) as threads, ExitStack() as scripts:
        running = [(side, *scripts.enter_context(_start(side, model))) for side in sides]

        def follow(side: Side, script: Popen[str], errors: IO[str]) -> Results:
            try:
                return _read(script, lambda done, total: step(side, done, total))
            except ModelRefusedError as error:
                problem = f'The model `{model}` cannot be used in the environment of the {side.name}.'
                raise UnusableModelError(problem, _remedy(str(error), sides), str(error)) from error
            except NotResultsError as error:
                errors.seek(0)
                raise FailedScriptError(
                    f'`demo/scenarios.py` failed in the environment of the {side.name}. {error}',
                    f'See more with `{show(side.python)} -I demo/scenarios.py`; `{side.made_by}` makes the environment again.',
                    errors.read(),
                ) from error

        futures = [threads.submit(follow, *each) for each in running]
        wait(futures, return_when=FIRST_EXCEPTION)
        for future in futures:
            if future.done():
                future.result()  # raises what went wrong; leaving the block then stops the other script
        return [future.result() for future in futures]


def show(path: Path) -> str:
    """Return a path as a user in the working directory would type it."""
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))


@contextmanager
def _start(side: Side, model: str | None) -> Generator[tuple[Popen[str], IO[str]]]:
    """Start the script, and stop it at the end if it is still running."""
    # `-I` keeps the user's `PYTHONPATH` and user packages out, so that only the environment's own are used.
    command = [side.python, '-I', '-X', 'utf8', SCRIPT, *(['--model', model] if model else [])]
    with TemporaryFile('w+', encoding='utf-8', errors='replace') as errors:
        try:
            script = Popen(command, stdin=DEVNULL, stdout=PIPE, stderr=errors, encoding='utf-8', errors='replace')
        except OSError as error:
            raise MissingEnvironmentError(
                f'The interpreter `{show(side.python)}` of the {side.name} does not start: {error.strerror}.',
                f'Make the environment again with `{side.made_by}`, or name another interpreter with `--{side.name}`.',
            ) from error
        try:
            yield script, errors
        finally:
            script.kill()  # does nothing when it has ended
            script.wait()
            if script.stdout:
                script.stdout.close()


def _read(script: Popen[str], step: Callable[[int, int], None]) -> Results:
    assert script.stdout
    environment = read_environment(script.stdout.readline())
    step(0, environment.scenarios)
    scenarios: list[Scenario] = []
    for line in script.stdout:
        scenarios.append(read_scenario(line))
        step(len(scenarios), environment.scenarios)
    if status := script.wait():
        raise NotResultsError(f'It ended with exit status {status}.')
    if len(scenarios) != environment.scenarios:
        raise NotResultsError(f'It ran only {len(scenarios)} of {environment.scenarios} scenarios.')
    return Results(environment, tuple(scenarios))


def _remedy(refusal: str, sides: Sequence[Side]) -> str:
    """Say how to make the model usable: the refusal names an extra if a package is missing."""
    if extra := re.search(r'pydantic-ai-slim\[[\w-]+\]', refusal):
        own = Path(sys.executable).with_name('uv')
        uv = show(own) if own.exists() else 'uv'
        commands = [f'`{uv} pip install --python {show(side.python)} "{extra[0]}"`' for side in sides]
        return f"Install the provider's package in both environments with {' and '.join(commands)}."
    return 'Set what is missing in the environment, or name another model, and run the same command again.'
