"""Projects that fail when they are loaded, and several projects in one process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from conftest import Write
from support import LOADED
from toolset_first import Project, ProjectError, Runtime, load_project
from toolset_first.cli import app
from typer.testing import CliRunner

ENTRY = """
    from support import entry

    async def main(input: str) -> str:
        return {said}

    start = entry(main)
    """
ENTERING = ENTRY.format(said='input')


@pytest.mark.parametrize(
    ('text', 'fault'),
    [
        ('import sys\nsys.exit(0)', '2: SystemExit: 0'),
        ('import sys\nsys.exit()', '2: SystemExit'),
        ('x = 1\nraise SystemExit("no")', '2: SystemExit: no'),
        ('x = 1\nraise GeneratorExit', '2: GeneratorExit'),
        ('import asyncio\nraise asyncio.CancelledError', '2: CancelledError'),
        ('from os import nothing', "1: ImportError: cannot import name 'nothing'"),
        ('x = 1\n1 / 0', '2: ZeroDivisionError: division by zero'),
        ('x = (', "1: SyntaxError: '(' was never closed"),
        ('from nowhere import x', "1: ModuleNotFoundError: No module named 'nowhere'"),
        ('def f():\n    raise ValueError("no")\nf()', '2: ValueError: no'),
    ],
)
def test_whatever_a_file_raises_is_reported_with_file_and_line(text: str, fault: str, write: Write) -> None:
    folder = write(a__py=ENTERING, bad__py=text)
    with pytest.raises(ProjectError) as error:
        load_project(folder)
    assert error.value.faults[0].startswith(f'{folder}/bad.py:{fault}')
    for command in (['check', str(folder)], ['run', str(folder), 'Go']):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 1
        assert f'{folder}/bad.py:{fault}' in done.stderr


def test_file_that_fails_for_each_that_imports_it_is_reported_once(write: Write) -> None:
    folder = write(a__py='import bad', b__py='import bad', bad__py='1 / 0')
    with pytest.raises(ProjectError) as error:
        load_project(folder)
    assert error.value.faults == (f'{folder}/bad.py:1: ZeroDivisionError: division by zero',)


def test_files_in_folders_are_run_only_if_they_are_named(write: Write) -> None:
    loaded = 'from support import LOADED; LOADED.append({!r})\n'
    folder = write(
        {
            'sub/b.py': loaded.format('b')
            + "from toolset_first import AgentSpec\nmore = AgentSpec('more', model='test')",
            'sub/c.py': loaded.format('c') + 'from support import echo\nmodel = echo()',
            'sub/d.py': loaded.format('d') + 'import sys; sys.exit()',
            'sub/e.worker': '---\nname: e\nmodel: c.py:model\n---\n',
        },
        a__py=ENTERING,
        conftest__py='1 / 0',
    )
    LOADED.clear()
    assert [spec.name for spec in load_project(folder).agents] == ['e']
    assert LOADED == ['c']
    assert [spec.name for spec in load_project(folder, 'sub/b.py').agents] == ['more', 'e']
    done = CliRunner().invoke(app, ['check', str(folder), '--file', 'sub/d.py'])
    assert done.exit_code == 1
    assert 'd.py:2: SystemExit' in done.stderr
    with pytest.raises(ProjectError, match=r'nowhere\.py:1: This is no regular file'):
        load_project(folder, 'nowhere.py')


async def test_two_projects_with_files_of_the_same_names_are_apart(tmp_path: Path, write: Write) -> None:
    said: list[str] = []
    projects: list[Project] = []
    for name in ('one', 'two'):
        write(
            {
                f'{name}/helpers.py': f'NAME = {name!r}',
                f'{name}/lazy.py': 'from helpers import NAME as LAZY',
                f'{name}/start.py': ENTRY.format(said='NAME + later()').replace(
                    '\n    from support',
                    '\n    from helpers import NAME\n\n    def later():\n        import lazy\n        return lazy.LAZY\n\n    from support',
                    1,
                ),
            }
        )
        projects.append(load_project(tmp_path / name))
    for project in projects:
        said.append(await Runtime(project.agents).run_entry(project.entry, 'Go'))
    assert said == ['oneone', 'twotwo']
    assert str(tmp_path) not in ''.join(sys.path)
    assert 'helpers' not in sys.modules


async def test_project_that_was_edited_is_loaded_as_it_is_now(write: Write) -> None:
    said: list[str] = []
    for word in ('one', 'two', 'ten'):  # of the same length, and within the same second
        folder = write(
            helpers__py=f'WORD = {word!r}',
            start__py='from helpers import WORD' + ENTRY.format(said='WORD').replace('\n    ', '\n'),
        )
        project = load_project(folder)
        said.append(await Runtime(project.agents).run_entry(project.entry, 'Go'))
    assert said == ['one', 'two', 'ten']


async def test_earlier_load_of_a_project_goes_on_with_what_it_was(write: Write) -> None:
    folder = write(start__py=ENTRY.format(said="'one'"))
    old = load_project(folder)
    write(start__py=ENTRY.format(said="'two'"))
    new = load_project(folder)
    assert [await Runtime().run_entry(project.entry, 'Go') for project in (old, new, old)] == ['one', 'two', 'one']


def test_files_of_a_project_import_each_other_in_all_ways(write: Write) -> None:
    folder = write(
        {
            'pkg/__init__.py': 'from .inner import X',
            'pkg/inner.py': 'X = 1',
            'data/table.py': 'Y = 2',
        },
        a__py="""
    import json, os.path
    import pkg
    import pkg.inner
    import pkg.inner as renamed
    from pkg import inner, X
    from data import table
    import data.table
    assert pkg.X == pkg.inner.X == renamed.X == inner.X == X == 1
    assert table is data.table
    assert json.loads('1') == 1
    """
        + ENTERING,
    )
    assert load_project(folder).entry.name == 'start'


def test_models_of_a_project_find_their_annotations(write: Write) -> None:
    text = """
    from __future__ import annotations
    from dataclasses import dataclass
    from pydantic import BaseModel
    from other import Inner

    class Outer(BaseModel):
        inner: Inner

    @dataclass
    class Data:
        outer: Outer

    def take(outer: Outer, data: Data) -> None:
        pass

    Outer(inner={})
    """
    folder = write(a__py=text + ENTERING, other__py='from pydantic import BaseModel\nclass Inner(BaseModel): pass')
    worker = '---\nname: b\nmodel: test\ntools: [take]\n---\n'
    (folder / 'b.worker').write_text(worker)
    (spec,) = load_project(folder).agents
    assert spec.toolset_specs[0].toolset is not None


def test_worker_file_that_can_not_be_read_is_named(write: Write) -> None:
    folder = write(a__py=ENTERING)
    (folder / 'b.worker').write_bytes('---\nname: b\nmodel: test\n---\nGrüße'.encode('latin-1'))
    (folder / 'c.worker').write_bytes('---\nname: c\nmodel: test\n---\nGrüße'.encode('utf-16'))
    os.mkfifo(folder / 'd.worker')
    os.mkfifo(folder / 'e.py')
    with pytest.raises(ProjectError) as error:
        load_project(folder)
    assert list(error.value.faults) == [
        f'{folder}/b.worker:1: The file `{folder}/b.worker` is not in UTF-8 (byte 31). Save it as UTF-8.',
        f'{folder}/c.worker:1: The file `{folder}/c.worker` is in UTF-16. Save it as UTF-8.',
        f'{folder}/d.worker:1: This is no regular file.',
        f'{folder}/e.py:1: This is no regular file.',
    ]


def test_worker_file_with_a_byte_order_mark_is_read(write: Write) -> None:
    folder = write(a__py=ENTERING)
    (folder / 'b.worker').write_bytes('\ufeff---\nname: b\nmodel: test\n---\nGrüße'.encode())
    (spec,) = load_project(folder).agents
    assert spec.instructions == 'Grüße'


def test_toolset_that_is_named_twice_is_refused_by_check(write: Write) -> None:
    text = 'from support import Keeper, StatefulKeeper\nkeeper = Keeper()\nother = StatefulKeeper()\n'
    folder = write(
        a__py=text,
        b__worker='---\nname: b\nmodel: test\nentry: true\ntoolsets: [keeper, keeper]\n---\n',
        c__worker='---\nname: c\nmodel: test\ntoolsets: [keeper, other]\n---\n',
    )
    done = CliRunner().invoke(app, ['check', str(folder)])
    assert done.exit_code == 1
    assert "b.worker:5: 'keeper' is there twice. Leave one of the two out." in done.stderr
    assert "c.worker:4: The agent 'c' has two tools `keep`: that of Keeper and that of StatefulKeeper" in done.stderr
