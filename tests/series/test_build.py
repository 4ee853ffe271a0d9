"""`build` makes the wheel, or says in the build hook's own words why not.

The tool's own interpreter builds here, because the index is out of reach. `tests/hook` has the real thing.
"""

from __future__ import annotations

import importlib.util
import py_compile
import zipfile
from pathlib import Path

import pytest

from pydantic_ai_slim.fork.errors import PatchError
from pydantic_ai_slim.fork.patches import apply_patches, copy_package
from series.build import build
from series.errors import DownloadError, SeriesError
from series.line import Line
from tests.series.upstream import BASE, quiet, refusal

TOOLS = 'pydantic_ai_slim/pydantic_ai/tools.py'
WHEEL = f'pydantic_ai_slim-{BASE}+lifecycle.1-py3-none-any.whl'


def test_build_puts_the_patched_base_into_a_wheel(buildable: Line) -> None:
    steps: list[str] = []
    wheel = build(buildable, lambda step, done=0, of=None: steps.append(step))
    assert wheel == buildable.root / 'dist' / WHEEL
    assert [path.name for path in wheel.parent.iterdir() if path.suffix == '.whl'] == [WHEEL]
    assert [path.name for path in wheel.parent.iterdir() if path.name.startswith('.build')] == []
    with zipfile.ZipFile(wheel) as content:
        assert 'return b + a' in content.read('pydantic_ai/tools.py').decode()
    assert steps == [f'Building the wheel of {BASE}+lifecycle.1']


def test_build_that_the_hook_stops_shows_its_words_and_leaves_no_wheel(
    buildable: Line, unpacked: Path, tmp_path: Path
) -> None:
    build(buildable, quiet)
    (patch,) = buildable.patches
    patch.write_text(patch.read_text().replace('-    return a + b', '-    return a * b'))
    (tree := tmp_path / 'tree').mkdir()
    copy_package(unpacked, tree)
    with pytest.raises(PatchError) as words:
        apply_patches(buildable.patches, tree)
    assert refusal(build, buildable, quiet) == f'The wheel of {BASE}+lifecycle.1 was not built.\n{words.value}'
    assert list((buildable.root / 'dist').glob('*.whl')) == []


def test_build_with_settings_that_are_not_valid_says_where(buildable: Line) -> None:
    project = buildable.root / 'pydantic_ai_slim' / BASE / 'pyproject.toml'
    project.write_text('[project\n')
    with pytest.raises(SeriesError) as error:
        build(buildable, quiet)
    path = f'pydantic_ai_slim/{BASE}'
    assert f'{error.value.problem}\n{error.value.remedy}' == (
        f"The wheel of {BASE}+lifecycle.1 was not built: `{path}/pyproject.toml` is not valid: Expected ']' at the end of a "
        f'table declaration (at line 1, column 9).\n'
        f'Restore it with `git checkout -- {path}`, then run `make build LINE=1.0.0` again.'
    )
    assert list((buildable.root / 'dist').glob('*.whl')) == []


def test_build_of_a_hook_that_breaks_shows_its_traceback(buildable: Line) -> None:
    hook = buildable.root / 'pydantic_ai_slim' / 'hatch_build.py'
    hook.write_text(hook.read_text() + '\n1 / 0\n')
    with pytest.raises(SeriesError) as error:
        build(buildable, quiet)
    assert 'Traceback' in error.value.words
    assert 'ZeroDivisionError: division by zero' in error.value.words


def test_build_leaves_the_wheels_of_others(buildable: Line) -> None:
    other = buildable.root / 'dist' / 'pydantic_ai_slim-2.0.0+lifecycle.1-py3-none-any.whl'
    other.parent.mkdir()
    other.write_bytes(b'another line')
    build(buildable, quiet)
    assert sorted(path.name for path in other.parent.glob('*.whl')) == [WHEEL, other.name]


def test_build_reads_no_bytecode_that_git_ignores(buildable: Line) -> None:
    """An unchecked `.pyc` stands for its module whatever that says, and `git status` shows none."""
    first = build(buildable, quiet).read_bytes()
    hook = buildable.root / 'pydantic_ai_slim' / 'hatch_build.py'
    text = hook.read_text()
    for source in (hook, hook.parent / 'fork' / 'build.py'):
        (evil := source.parent / 'evil.py').write_text('import sys\nsys.exit("replaced")\n')
        py_compile.compile(
            str(evil),
            importlib.util.cache_from_source(str(source)),
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        evil.unlink()
    assert build(buildable, quiet).read_bytes() == first
    assert hook.read_text() == text


def test_build_of_a_folder_with_a_file_that_is_not_ours_is_refused(buildable: Line) -> None:
    """A `hatch.toml` takes the place of the settings, and so of the hook that checks everything."""
    project = buildable.root / 'pydantic_ai_slim' / BASE
    (project / 'hatch.toml').write_text('[build.targets.wheel]\nbypass-selection = true\n')
    (project / 'LICENSE.lifecycle').unlink()
    with pytest.raises(SeriesError) as error:
        build(buildable, quiet)
    assert f'{error.value.problem}\n{error.value.remedy}' == (
        f'The wheel of {BASE}+lifecycle.1 was not built.\n'
        f'The fork is not built from a folder that has other files than this repository. In `{project}`:\n'
        f'- `hatch.toml` does not belong there.\n'
        f'- `LICENSE.lifecycle` is missing.\n'
        f'Move away what does not belong there, restore what is missing with `git checkout -- pydantic_ai_slim`, and build again.'
    )
    assert list((buildable.root / 'dist').glob('*.whl')) == []


HOOK_END = """
inner = LineBuildHook.initialize
def initialize(self, version, build_data):
    inner(self, version, build_data)
    {change}
LineBuildHook.initialize = initialize
"""
CHANGES = {
    'another module in the package': (
        'build_data["force_include"][__file__] = "pydantic_ai/evil.py"',
        'Its package has another digest than `patches/1.0.0/line.toml` pins: ',
    ),
    'a file beside the package': (
        'build_data["force_include"][__file__] = "evil.pth"',
        'It has files that belong to no fork: `evil.pth`.',
    ),
    'another requirement': (
        'self.metadata.core.dependencies.append("evil>=1"); self.metadata.core.dependencies_complex["evil"] = None',
        'It does not require what the base requires, within the caps of the line.',
    ),
    'another script': (
        'self.metadata.core.scripts["evil"] = "pydantic_ai:evil"',
        'Its scripts are not those of the base.',
    ),
}


@pytest.mark.parametrize('what', CHANGES)
def test_build_whose_wheel_is_not_what_is_pinned_is_refused(what: str, buildable: Line) -> None:
    """Whatever changes it in the process that builds, the process that reads the wheel is another one."""
    change, fault = CHANGES[what]
    hook = buildable.root / 'pydantic_ai_slim' / 'hatch_build.py'
    hook.write_text(hook.read_text() + HOOK_END.format(change=change))
    with pytest.raises(SeriesError) as error:
        build(buildable, quiet)
    assert error.value.problem.startswith(
        f'The wheel of {BASE}+lifecycle.1 that came out is not what its line pins, and was thrown away:\n- {fault}'
    )
    assert list((buildable.root / 'dist').glob('*.whl')) == []


def test_build_runs_nothing_of_the_base(buildable: Line, tmp_path: Path) -> None:
    """A wheel of the base with the pinned package and metadata, and with a `.pth` that Python runs when it starts."""
    wheel = next(buildable.cache.glob('base-wheel-*/*.whl'))
    with zipfile.ZipFile(wheel, 'a') as content:
        content.writestr('evil.pth', f'import pathlib; pathlib.Path({str(tmp_path / "ran")!r}).touch()\n')
    with pytest.raises(DownloadError) as error:
        build(buildable, quiet)
    assert error.value.problem == 'The wheel of `pydantic-ai-slim` 1.0.0 is not what upstream has released.'
    assert error.value.words == 'It also has `evil.pth`, which could run code in every Python that has it.'
    assert not (tmp_path / 'ran').exists()
