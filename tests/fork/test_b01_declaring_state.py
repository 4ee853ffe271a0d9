"""B1: `stateful` and `copy()` of a toolset."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, ExternalToolset, FunctionToolset, ToolDefinition
from pydantic_ai.toolsets import CombinedToolset

from . import declared
from .toolsets import Journal, Server, Session

HERE = Path(__file__).parent


def not_stateful() -> list[AbstractToolset[Any]]:
    return [
        declared.Plain(),
        FunctionToolset(),
        ExternalToolset([ToolDefinition(name='external')]),
        CombinedToolset([]),
        CombinedToolset([declared.Plain()]),
        declared.Plain().prefixed('x'),
        Server('server', Journal()),
    ]


def label_of(toolset: AbstractToolset[Any]) -> str:
    return type(toolset).__name__


def test_b01_stateful_undeclared_is_false():
    assert AbstractToolset.stateful is False


@pytest.mark.parametrize('toolset', declared.TOOLSETS, ids=label_of)
def test_b01_stateful_declared_is_true(toolset: AbstractToolset[Any]):
    assert toolset.stateful is True


@pytest.mark.parametrize('toolset', declared.TOOLSETS, ids=label_of)
def test_b01_copy_of_stateful_toolset_is_another_of_its_class(toolset: AbstractToolset[Any]):
    copy = toolset.copy()
    assert type(copy) is type(toolset)
    assert copy is not toolset
    assert copy.stateful is True


def test_b01_copy_of_stateful_toolset_called_twice_returns_two():
    toolset = Session('session', Journal())
    assert toolset.copy() is not toolset.copy()


@pytest.mark.parametrize('toolset', not_stateful(), ids=label_of)
def test_b01_copy_of_stateless_toolset_returns_itself(toolset: AbstractToolset[Any]):
    assert toolset.stateful is False
    assert toolset.copy() is toolset


@pytest.mark.parametrize(
    'toolset',
    [
        declared.AsInstanceAttribute(stateful=False),
        declared.AsDataclassField(stateful=False),
        declared.WrapperAsDataclassField(declared.Plain(), stateful=False),
        declared.WrapperAsInstanceAttribute(declared.Plain(), stateful=False),
    ],
    ids=label_of,
)
def test_b01_stateful_declared_false_in_an_instance_is_false(toolset: AbstractToolset[Any]):
    assert toolset.stateful is False


def find_pyright() -> str | None:
    """Find pyright: beside this interpreter, on the path, or in the tool's environment."""
    places = [Path(sys.executable).parent, *os.get_exec_path(), HERE.parents[1] / 'build/tool/bin']
    return shutil.which('pyright', path=os.pathsep.join(map(str, places)))


@pytest.fixture(scope='module')
def pyright() -> str:
    found = find_pyright()
    if found is None:
        pytest.skip('`pyright` is not installed: install it beside the fork, or run `make build/tool/.ready`')
    return found


def check_types(pyright: str, path: Path, folder: Path) -> list[str]:
    """Return pyright's messages for a file, checked with nobody's configuration against the package that is tested."""
    # Pyright takes the nearest configuration in this folder or above it.
    (folder / 'pyrightconfig.json').write_text('{}')
    done = subprocess.run(
        [pyright, '--outputjson', '--pythonpath', sys.executable, str(path)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        diagnostics = json.loads(done.stdout)['generalDiagnostics']
    except (ValueError, KeyError):
        pytest.fail(f'`pyright` did not run: {done.stdout}{done.stderr}')
    return [f'{diagnostic["range"]["start"]["line"] + 1}: {diagnostic["message"]}' for diagnostic in diagnostics]


def test_b01_declared_in_every_way_passes_strict_type_check(pyright: str, tmp_path: Path):
    path = tmp_path / 'declared.py'
    shutil.copy(HERE / 'declared.py', path)
    assert check_types(pyright, path, tmp_path) == []


def test_b01_declared_with_another_type_fails_type_check(pyright: str, tmp_path: Path):
    path = tmp_path / 'declared.py'
    source = (HERE / 'declared.py').read_text()
    path.write_text(source.replace('stateful = True', "stateful = 'yes'", 1))
    (message,) = check_types(pyright, path, tmp_path)
    assert '"bool"' in message
