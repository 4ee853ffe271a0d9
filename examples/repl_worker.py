"""The process that the REPL's code runs in. It reads requests, and writes whatever the code prints.

A request is a line of JSON with what to do, with what, and the mark to write when it's done:
`{"do": "run", "argument": "x = 42", "end": "9f0c..."}`. Besides `run`, there is `save` and `load`, with the path of a file.
"""

from __future__ import annotations

import ast
import io
import itertools
import json
import linecache
import os
import pickle
import signal
import sys
import traceback
import types
from pathlib import Path
from typing import Any, TextIO

import cloudpickle  # pyright: ignore[reportMissingTypeStubs]

# The code is in a module of its own. What's defined in `__main__` is pickled as a whole, and not by its name.
MODULE = types.ModuleType('__main__')
VARIABLES = vars(MODULE)

_cells = itertools.count(1)


def run(code: str) -> None:
    """Run code, and print the value of its last statement if that's an expression."""
    name = f'<cell {next(_cells)}>'
    # Tracebacks show the lines from here.
    linecache.cache[name] = len(code), None, code.splitlines(keepends=True), name
    tree = ast.parse(code, name)
    first, last = ast.Module(tree.body[:-1], tree.type_ignores), ast.Interactive(tree.body[-1:])
    for part, mode in (first, 'exec'), (last, 'single'):
        exec(compile(part, name, mode, dont_inherit=True), VARIABLES)  # noqa: S102 (that's what it's for)


def save(path: str) -> None:
    """Write the variables to a file, and print which ones can't be pickled."""
    variables = {name: value for name, value in VARIABLES.items() if not name.startswith('__')}
    try:
        content = _pickle(variables)
    except Exception:  # noqa: BLE001 (a class can raise anything when it's pickled)
        left_out = {name for name, value in variables.items() if not _can_be_pickled(value)}
        content = _pickle({name: value for name, value in variables.items() if name not in left_out})
        print(f'[These variables could not be taken over, since they cannot be pickled: {", ".join(sorted(left_out))}]')
    Path(path).write_bytes(content)


def load(path: str) -> None:
    """Read variables from a file."""
    with Path(path).open('rb') as file:
        VARIABLES.update(_Unpickler(file).load())


_Base: Any = cloudpickle.Pickler  # which has no types


class _Pickler(_Base):
    def persistent_id(self, obj: Any) -> str | None:
        return 'globals' if obj is VARIABLES else None


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> Any:
        return VARIABLES


def _pickle(value: Any) -> bytes:
    file = io.BytesIO()
    pickler = _Pickler(file)
    # Functions are pickled without their globals: those of the process that loads them take their place.
    pickler.globals_ref[id(VARIABLES)] = VARIABLES
    pickler.dump(value)
    return file.getvalue()


def _can_be_pickled(value: Any) -> bool:
    try:
        _pickle(value)
    except Exception:  # noqa: BLE001
        return False
    return True


def main() -> None:
    """Do what is asked for, until nobody asks any more."""
    requests, end = _take_over_pipes()
    worker = sys.modules['__main__']
    sys.modules['__main__'] = MODULE
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.write(end, b'ready')
    for line in requests:
        request = json.loads(line)
        try:
            try:
                # Ctrl-C, as in every REPL, but not between two requests.
                signal.signal(signal.SIGINT, signal.default_int_handler)
                getattr(worker, request['do'])(request['argument'])
            finally:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        except BaseException as error:  # noqa: BLE001 (whatever the code raises, the next request is served)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            _print_traceback(error)
        sys.stdout.flush()
        os.write(end, request['end'].encode())


def _take_over_pipes() -> tuple[TextIO, int]:
    """Return where requests come from, and the file descriptor for marks. The code's input and output are others."""
    requests = os.fdopen(os.dup(0), encoding='utf-8')
    end = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(encoding='utf-8', errors='backslashreplace', line_buffering=True)
    return requests, end


def _print_traceback(error: BaseException) -> None:
    frames = error.__traceback__
    while frames and not frames.tb_frame.f_code.co_filename.startswith('<cell '):
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames)


if __name__ == '__main__':
    main()
