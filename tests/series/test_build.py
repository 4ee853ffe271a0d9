"""`build` makes the wheel, or says in the build hook's own words why not.

uv builds with the tool's own hatchling here, and with the base on `PYTHONPATH`, because the index is out of reach.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from pydantic_ai_slim.hatch_build import PatchError, apply_patches, copy_package
from series.build import build
from series.errors import BuildError
from series.line import Line
from tests.series.upstream import BASE, quiet

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


def test_build_twice_gives_the_same_bytes(buildable: Line) -> None:
    first = build(buildable, quiet).read_bytes()
    assert build(buildable, quiet).read_bytes() == first


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
    with pytest.raises(BuildError) as error:
        build(buildable, quiet)
    assert str(error.value) == f'The wheel of {BASE}+lifecycle.1 was not built.\n{words.value}'
    assert list((buildable.root / 'dist').glob('*.whl')) == []


def test_build_that_fails_before_the_hook_shows_the_builder_s_words(buildable: Line) -> None:
    project = buildable.root / 'pydantic_ai_slim' / BASE / 'pyproject.toml'
    project.write_text('[project\n')
    with pytest.raises(BuildError) as error:
        build(buildable, quiet)
    assert f'{error.value.problem}\n{error.value.remedy}' == (
        f'The wheel of {BASE}+lifecycle.1 was not built.\n'
        "These are the builder's words; put right what they name, then run `make build LINE=1.0.0` again."
    )
    assert 'TOML parse error at line 1, column 9' in error.value.words
    assert list((buildable.root / 'dist').glob('*.whl')) == []


def test_build_of_a_hook_that_breaks_shows_its_traceback(buildable: Line) -> None:
    hook = buildable.root / 'pydantic_ai_slim' / 'hatch_build.py'
    hook.write_text(
        hook.read_text().replace(
            'def line_of(root: Path) -> PinnedLine:', 'def line_of(root: Path) -> PinnedLine:\n    1 / 0'
        )
    )
    with pytest.raises(BuildError) as error:
        build(buildable, quiet)
    assert 'Traceback' in error.value.words
    assert 'ZeroDivisionError: division by zero' in error.value.words


def test_build_leaves_the_wheels_of_others(buildable: Line) -> None:
    other = buildable.root / 'dist' / 'pydantic_ai_slim-2.0.0+lifecycle.1-py3-none-any.whl'
    other.parent.mkdir()
    other.write_bytes(b'another line')
    build(buildable, quiet)
    assert sorted(path.name for path in other.parent.glob('*.whl')) == [WHEEL, other.name]
