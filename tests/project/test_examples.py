"""`python -m examples` lists the examples, and says what to do when it can't run one."""

from __future__ import annotations

import os

import pytest

from examples import __main__ as examples
from series.line import Line


@pytest.fixture(autouse=True)
def _checkout(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, 'ROOT', line.root)


def test_examples_without_a_name_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert examples.main([]) == 0

    said = capsys.readouterr().out.splitlines()
    assert 'pure_functions  Pure functions: a toolset of hashes, which has nothing to declare.' in said
    assert not [line for line in said if line.startswith('support')]


def test_examples_unknown_name_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        examples.main(['pure-functions'])

    assert exit_.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith('error: There is no example `pure-functions`.\nName one of `approvals`, ')
    assert '`pure_functions`' in said
    assert said.endswith(' (`make example NAME=…`).\n')


def test_examples_build_the_wheel_only_if_there_is_none_or_the_patches_are_newer(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []

    def build(line: Line, report: object) -> None:
        built.append(line.name)

    monkeypatch.setattr(examples, 'build', build)
    wheel = line.root / 'dist' / f'pydantic_ai_slim-{line.version}-py3-none-any.whl'
    wheel.parent.mkdir(exist_ok=True)

    examples.build_if_needed(line)
    assert built == [line.name]

    wheel.write_bytes(b'')
    later = wheel.stat().st_mtime + 10
    os.utime(wheel, (later, later))
    examples.build_if_needed(line)
    assert built == [line.name]

    patch = line.folder / 'fixes/add-one.patch'
    patch.parent.mkdir()
    patch.touch()
    (line.folder / 'series').write_text('fixes/add-one.patch\n')
    os.utime(patch, (later + 10, later + 10))
    examples.build_if_needed(line)
    assert built == [line.name, line.name]


def test_examples_unknown_name_is_refused_before_anything_is_built(
    line: Line, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(line: Line, report: object) -> None:
        pytest.fail('built')

    monkeypatch.setattr(examples, 'build', build)

    for arguments in (['none'], ['first-user', '--base']):
        with pytest.raises(SystemExit) as exit_:
            examples.main(arguments)
        assert exit_.value.code == 2


def test_examples_of_downstream_projects_are_listed_by_their_names(
    line: Line, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = line.root / 'downstream' / 'first_user' / 'examples'
    folder.mkdir(parents=True)
    (folder / 'main.py').write_text('"""What a user sees first.\n\nAnd more."""\n')

    assert examples.main([]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split(maxsplit=1) == ['first-user', 'What a user sees first.']
    with pytest.raises(SystemExit):
        examples.main(['first-user', '--base'])
    assert "`first-user` isn't one of them" in capsys.readouterr().err
