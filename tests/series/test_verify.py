"""`verify` checks a series patch by patch and names all faults at once.

Here the tool's own interpreter runs the tests, which has pytest and takes `pydantic_ai` from the tree as any other does.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from series.errors import SeriesError, VerifyError
from series.line import Line, digest_patches, find_line
from series.linkcheck import RESOLVE
from series.progress import Report
from series.verbs.apply import apply
from series.verbs.extract import extract
from series.verbs.verify import Verified, verify
from tests.series.upstream import PACKAGE, User, quiet, write_line, write_series

MESSAGE = """\
{}

The package has no such thing today, and what a user writes instead has
to be written again for each project. A subclass can't do it, since
there is no class.

Forwarded: no
"""
INIT = 'pydantic_ai_slim/pydantic_ai/__init__.py'
TOOLS = 'pydantic_ai_slim/pydantic_ai/tools.py'
SUBTRACT: dict[str, str | bytes] = {
    TOOLS: PACKAGE['pydantic_ai/tools.py'] + '\n\ndef subtract(a: int, b: int) -> int:\n    return a - b\n',
    'tests/test_subtract.py': 'from pydantic_ai.tools import subtract\n\n\ndef test_subtract():\n    assert subtract(3, 2) == 1\n',
}
REMEDY = (
    'Correct the commits in `build/1.0.0` with `git rebase --interactive refs/series/base`, write them to `patches/1.0.0` '
    'with `make extract LINE=1.0.0`, and run `make verify LINE=1.0.0` again.'
)


def needing(subject: str, *needs: str) -> str:
    """Return a message that names the patches which this one needs."""
    return MESSAGE.format(subject).replace('Forwarded', ''.join(f'Needs: {need}\n' for need in needs) + 'Forwarded')


def write(line: Line, user: User, *commits: tuple[str, dict[str, str | bytes]]) -> None:
    """Write commits to the line's patches and leave no tree behind."""
    shutil.rmtree(write_series(line, *commits).tree)


def check(line: Line, report: Report = quiet, *, together: bool = False) -> list[Verified]:
    now = find_line(line.root, line.name)
    found = replace(line, patched=now.patched)
    return verify(found, report, lambda _: Path(sys.executable), together=together)


def faults(line: Line) -> list[str]:
    """Verify a line that has faults in its last patch only, and return them without the words of others."""
    with pytest.raises(VerifyError) as error:
        check(line)
    assert list(error.value.faults) == [line.show(line.patches[-1])]
    return [fault.problem for found in error.value.faults.values() for fault in found]


def test_verify_of_a_package_that_is_not_pinned_says_so(line: Line, user: User) -> None:
    write(line, user, (MESSAGE.format('Add `subtract()`'), SUBTRACT))
    pins = line.folder / 'line.toml'
    pins.write_text(re.sub('patched = "sha256:.', 'patched = "sha256:x', pins.read_text()).replace('x', '0'))
    assert faults(line) == [
        '`patches/1.0.0/line.toml` pins another package than the patches make. `make extract` pins theirs.'
    ]


def test_verify_of_a_good_series_counts_its_tests_and_names_patch_and_step(
    line: Line, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('series.verbs.verify.os.cpu_count', lambda: 1)
    more = 'from pydantic_ai import add\n\n\ndef test_more():\n    assert add(2, 2) == 4\n\n\ndef test_most():\n    assert add(3, 3) == 6\n'
    write(
        line,
        user,
        (MESSAGE.format('Add `subtract()`'), SUBTRACT),
        (MESSAGE.format('Test `add()` more'), {'tests/test_more.py': more}),
    )
    steps: list[tuple[str, int, int | None]] = []
    found = check(line, lambda step, done=0, of=None: steps.append((step, done, of)))
    # That of the first is run again after the last.
    assert [(verified.patch, verified.tests, verified.faults) for verified in found] == [
        (line.patches[0], 1, []),
        (line.patches[1], 2 + 1, []),
    ]
    assert steps == [
        ("Making the environment of upstream's tests", 0, None),
        ('Checking the base out', 0, None),
        ('Applying `fixes/add-subtract`', 0, 2),
        ('Applying `fixes/test-add-more`', 1, 2),
        # Each after those before it, the second on the base, and all after the last.
        ('Verifying the patches', 0, 4),
        ('Verified `fixes/add-subtract`', 1, 4),
        ('Verified what all patches carry, after the last', 2, 4),
        ('Verified `fixes/test-add-more`', 3, 4),
        ('Verified `fixes/test-add-more`, on the base alone', 4, 4),
    ]


def test_verify_leaves_the_tree_and_the_patches_alone(line: Line, user: User) -> None:
    write(line, user, (MESSAGE.format('Add `subtract()`'), SUBTRACT))
    apply(line, quiet)
    (line.tree / 'tests' / 'test_tools.py').write_text('work\n')
    (line.tree / 'tests' / 'test_new.py').write_text('work\n')
    before = user.git('status', '--porcelain'), user.git('log'), digest_patches(line.patches)
    check(line)
    assert (user.git('status', '--porcelain'), user.git('log'), digest_patches(line.patches)) == before
    assert sorted(path.name for path in line.tree.parent.iterdir()) == [line.name, 'cache']


def test_verify_without_patches_finds_nothing(line: Line) -> None:
    assert check(line) == []


def test_verify_names_all_faults_at_once(line: Line, user: User) -> None:
    wrong = {**SUBTRACT, 'tests/test_subtract.py': str(SUBTRACT['tests/test_subtract.py']).replace('== 1', '== 2')}
    write(
        line,
        user,
        ('fix: Say hello', {'hello.txt': 'Hello\n'}),
        (MESSAGE.format('Add `subtract()`.'), wrong),
        (needing('Add `multiply()`', 'Add `subtract()`.'), {TOOLS: str(wrong[TOOLS]) + '\n\ndef multiply(): ...\n'}),
    )
    with pytest.raises(VerifyError) as error:
        check(line)
    # Not the words of pytest, which depend on its version.
    text = re.sub(r'^    .*\n', '', str(error.value), flags=re.MULTILINE)
    assert text == (
        'The series on 1.0.0 has 8 faults.\n'
        '\n'
        '`patches/1.0.0/fixes/fix-say-hello.patch`:\n'
        "- The subject 'fix: Say hello' has a prefix.\n"
        '- There is no body.\n'
        '- The last paragraph is not trailers only; there has to be a `Forwarded:`.\n'
        '- It touches `hello.txt`, which is in none of `pydantic_ai_slim/pydantic_ai/`, `tests/`, `docs/`.\n'
        '\n'
        '`patches/1.0.0/fixes/add-subtract.patch`:\n'
        "- The subject 'Add `subtract()`.' ends in a full stop.\n"
        '- The tests in `tests/test_subtract.py` fail after it.\n'
        '\n'
        '`patches/1.0.0/fixes/add-multiply.patch`:\n'
        '- It changes `pydantic_ai_slim/pydantic_ai/` and carries no test of that.\n'
        '- The tests in `tests/test_subtract.py` fail after it.\n'
        '\n'
        f'{REMEDY}'
    )
    words = [
        fault.words for found in error.value.faults.values() for fault in found if 'fail after it' in fault.problem
    ]
    assert ['assert 1 == 2' in said and '1 failed' in said for said in words] == [True, True]


@pytest.mark.slow
def test_verify_of_a_package_that_only_the_next_patch_makes_whole_finds_the_first(line: Line, user: User) -> None:
    write(
        line,
        user,
        (
            MESSAGE.format('Export `subtract()`'),
            {INIT: 'from .tools import add, subtract\n', 'tests/test_export.py': SUBTRACT['tests/test_subtract.py']},
        ),
        (MESSAGE.format('Add `subtract()`'), SUBTRACT),
    )
    with pytest.raises(VerifyError) as error:
        check(line)
    assert {patch: [fault.problem for fault in found] for patch, found in error.value.faults.items()} == {
        'patches/1.0.0/fixes/export-subtract.patch': ['`import pydantic_ai` fails after it.']
    }


@pytest.mark.slow
def test_verify_of_a_test_that_a_later_patch_breaks_finds_the_later(line: Line, user: User) -> None:
    broken = str(SUBTRACT[TOOLS]).replace('a - b', 'b - a')
    write(
        line,
        user,
        (MESSAGE.format('Add `subtract()`'), SUBTRACT),
        (
            needing('Swap the operands', 'Add `subtract()`'),
            {
                TOOLS: broken,
                'tests/test_swap.py': 'from pydantic_ai.tools import subtract\n\n\ndef test_swap():\n    subtract(1, 2)\n',
            },
        ),
    )
    assert faults(line) == ['The tests in `tests/test_subtract.py` fail after it.']


def test_verify_of_a_patch_with_ignored_files_names_them(line: Line, user: User) -> None:
    apply(line, quiet)
    (line.tree / 'tests' / '__pycache__').mkdir(parents=True)
    (line.tree / 'tests' / '__pycache__' / 'test_tools.pyc').write_bytes(b'\0')
    user.git('add', '--force', '--all')
    user.commit(MESSAGE.format('Add `subtract()`'), SUBTRACT)
    extract(line, quiet)
    assert faults(line) == ["It touches `tests/__pycache__/test_tools.pyc`, which upstream's `.gitignore` keeps out."]


def test_verify_of_a_patch_that_does_not_apply_stops_there(line: Line, user: User) -> None:
    write(
        line,
        user,
        (MESSAGE.format('Add `subtract()`'), SUBTRACT),
        (MESSAGE.format('Test `add()`'), {'tests/test_tools.py': 'def test(): ...\n'}),
    )
    first = line.patches[0]
    first.write_text(first.read_text().replace(' def name() -> str:', ' def title() -> str:'))
    with pytest.raises(VerifyError) as error:
        check(line)
    assert str(error.value) == (
        'The series on 1.0.0 has 1 fault.\n'
        '\n'
        '`patches/1.0.0/fixes/add-subtract.patch`:\n'
        '- It does not apply to the base with the patches before it.\n'
        f'    error: patch failed: {TOOLS}:4\n'
        f'    error: {TOOLS}: patch does not apply\n'
        '\n'
        f'{REMEDY}'
    )


@pytest.mark.slow
def test_verify_of_a_patch_that_extract_would_write_otherwise_says_so(line: Line, user: User) -> None:
    write(line, user, (MESSAGE.format('Add `subtract()`'), SUBTRACT))
    patch = line.patches[0]
    patch.write_text(re.sub(r'^index .*\n', '', patch.read_text(), flags=re.MULTILINE))
    assert faults(line) == ['`make extract` would write it otherwise. Let it, after `make apply`.']
    apply(line, quiet)
    extract(line, quiet)
    check(line)


def test_verify_without_requirements_says_what_uv_misses(line: Line) -> None:
    running = f'{sys.version_info.major}.{sys.version_info.minor}'
    with pytest.raises(SeriesError) as error:
        verify(replace(line, python=(running,)), quiet)
    assert 'tests.in' in error.value.words


# What a patch needs

USE: dict[str, str | bytes] = {
    'pydantic_ai_slim/pydantic_ai/use.py': 'from .tools import subtract\n\n\ndef use() -> int:\n    return subtract(3, 1)\n',
    'tests/test_use.py': 'from pydantic_ai.use import use\n\n\ndef test_use():\n    assert use() == 2\n',
}
TITLE: dict[str, str | bytes] = {
    INIT: PACKAGE['pydantic_ai/__init__.py'] + "\ntitle = 'AI'\n",
    'tests/test_title.py': "import pydantic_ai\n\n\ndef test_title():\n    assert pydantic_ai.title == 'AI'\n",
}


@pytest.mark.slow
def test_verify_of_patches_that_name_what_they_need_passes(line: Line, user: User) -> None:
    write(
        line,
        user,
        (MESSAGE.format('Add `subtract()`'), SUBTRACT),
        (MESSAGE.format('Add a title'), TITLE),
        (needing('Use `subtract()`', 'Add `subtract()`'), USE),
        (
            needing('Use it more', 'Use `subtract()`'),
            {'tests/test_more.py': 'import pydantic_ai.use\n\n\ndef test_more():\n    assert pydantic_ai.use.use()\n'},
        ),
    )
    steps: list[tuple[str, int, int | None]] = []

    found = check(line, lambda step, done=0, of=None: steps.append((step, done, of)))

    assert [verified.faults for verified in found] == [[]] * 4
    # After those before it: 4, and all of them; on what it needs: the last three; without what they need: the last two.
    assert steps[-1][1:] == (10, 10)


@pytest.mark.slow
def test_verify_of_a_patch_that_does_not_name_what_its_text_stands_on_says_so(line: Line, user: User) -> None:
    write(
        line,
        user,
        (MESSAGE.format('Add `subtract()`'), SUBTRACT),
        (
            MESSAGE.format('Say what it does'),
            {TOOLS: str(SUBTRACT[TOOLS]) + '# b from a\n', 'tests/test_said.py': 'def test_said(): ...\n'},
        ),
    )
    with pytest.raises(VerifyError) as error:
        check(line)
    ((fault,),) = error.value.faults.values()
    assert fault.problem == 'It does not apply on the base alone. Name in a `Needs:` trailer what it needs besides.'
    assert f'error: patch failed: {TOOLS}:' in fault.words
    with pytest.raises(VerifyError, match='It does not apply on the base alone'):
        check(line, together=True)


@pytest.mark.slow
def test_verify_of_a_patch_that_does_not_name_what_it_uses_shows_what_fails(line: Line, user: User) -> None:
    write(line, user, (MESSAGE.format('Add `subtract()`'), SUBTRACT), (MESSAGE.format('Use `subtract()`'), USE))
    with pytest.raises(VerifyError) as error:
        check(line)
    ((fault,),) = error.value.faults.values()
    assert fault.problem == 'The tests in `tests/test_use.py` fail after it, on the base alone.'
    assert 'cannot import name' in fault.words


def test_verify_of_an_older_line_asks_for_no_tests_that_the_newest_has(line: Line, user: User) -> None:
    write(line, user, (MESSAGE.format('Add `subtract()`'), {TOOLS: SUBTRACT[TOOLS]}))
    assert faults(line) == [
        'It changes `pydantic_ai_slim/pydantic_ai/` and carries no test of that.',
        'The tests that it carries do not run all lines that it adds.',
    ]
    shutil.copytree(line.folder, newest := line.folder.with_name('1.1.0'))
    (newest / 'line.toml').write_text((newest / 'line.toml').read_text().replace('"1.0.0"', '"1.1.0"'))
    assert [verified.tests for verified in check(line)] == [0]


@pytest.mark.slow
def test_verify_together_tests_the_patches_once_after_the_last(line: Line, user: User) -> None:
    write(line, user, (MESSAGE.format('Use `subtract()`'), USE), (MESSAGE.format('Add `subtract()`'), SUBTRACT))

    found = check(line, together=True)

    assert [verified.faults for verified in found] == [[]] * 2
    assert sum(verified.tests for verified in found) == 2
    with pytest.raises(VerifyError):
        check(line)


@pytest.mark.slow
def test_verify_of_a_patch_that_names_what_it_does_not_need_says_so(line: Line, user: User) -> None:
    write(
        line,
        user,
        (MESSAGE.format('Add `subtract()`'), SUBTRACT),
        (needing('Add a title', 'Add `subtract()`'), TITLE),
    )
    assert faults(line) == [
        'It needs no `fixes/add-subtract`, without which it applies and its tests pass, but names it in `Needs:`.'
    ]


def test_verify_of_a_patch_in_which_ruff_finds_more_names_place_and_rule(line: Line, user: User) -> None:
    test = f'{SUBTRACT["tests/test_subtract.py"]}    x = 1\n'
    write(line, user, (MESSAGE.format('Add `subtract()`'), {**SUBTRACT, 'tests/test_subtract.py': test}))
    with pytest.raises(VerifyError) as error:
        check(line)
    (found,) = error.value.faults[line.show(line.patches[0])]
    assert found.problem == "`ruff` with upstream's settings finds in it what it doesn't find without it."
    assert found.words == 'tests/test_subtract.py:6: F841 Local variable `x` is assigned to but never used'


def left_out_of(line: Line) -> str:
    """Return the lines that `verify` says the tests of a line's patch don't run, which has to be all that it says."""
    with pytest.raises(VerifyError) as error:
        check(line)
    ((fault,),) = error.value.faults.values()
    assert fault.problem == 'The tests that it carries do not run all lines that it adds.'
    return fault.words


def test_verify_of_a_patch_whose_tests_leave_lines_out_names_them(line: Line, user: User) -> None:
    code = (
        PACKAGE['pydantic_ai/tools.py']
        + '\n\ndef subtract(a: int, b: int) -> int:\n    if a < b:\n        print(a)\n        return -1\n'
        + '    if a == 1000:\n        return 0  # pragma: no cover\n    return a - b\n'
    )
    write(line, user, (MESSAGE.format('Add `subtract()`'), SUBTRACT | {TOOLS: code} | NEW))
    assert left_out_of(line) == f'{FOLDER}/__init__.py:3\n{FOLDER}/new.py (no test imports it)\n{TOOLS}:11\n{TOOLS}:12'


FOLDER = 'pydantic_ai_slim/pydantic_ai/extra'
NEW: dict[str, str | bytes] = {
    f'{FOLDER}/__init__.py': 'from not_there import x\n\nprint(x)\n',
    f'{FOLDER}/new.py': 'x = 1\n',
}
"""What can't be imported, as a package that it needs isn't installed."""


def test_verify_of_a_patch_whose_docs_have_links_that_lead_nowhere_names_them(line: Line, user: User) -> None:
    page = (
        "# Tools and `names`\n\n[this](#tools-and-names), [that](#gone), [upstream's](agent.md#runs), "
        '[`add()`][pydantic_ai.tools.add], [`gone()`][pydantic_ai.tools.gone]\n\n```python\nx = "[a](#b)"\n```\n'
    )
    write(line, user, (MESSAGE.format('Add `subtract()`'), SUBTRACT | {'docs/links.md': page}))
    with pytest.raises(VerifyError) as error:
        check(line)
    ((fault,),) = error.value.faults.values()
    assert (fault.problem, fault.words) == (
        'Its docs have links that lead nowhere.',
        'docs/links.md: #gone\npydantic_ai.tools.gone',
    )


@pytest.mark.slow
def test_verify_restores_what_tests_change(line: Line, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('os.cpu_count', lambda: 1)
    test = f"""\
from pathlib import Path


def test_change():
    for name in ({TOOLS!r}, 'tests/test_later.py'):
        Path(name).write_text('not Python')
"""
    later = 'from pydantic_ai.tools import subtract\n\n\ndef test_later():\n    assert subtract(1, 1) == 0\n'
    write(
        line,
        user,
        (MESSAGE.format('Add `subtract()`'), SUBTRACT | {'tests/test_zz.py': test}),
        (needing('Test it later', 'Add `subtract()`'), {'tests/test_later.py': later}),
    )
    assert [verified.faults for verified in check(line)] == [[], []]


@pytest.mark.slow
def test_verify_of_a_series_that_breaks_the_api_says_what(line: Line, user: User) -> None:
    code = PACKAGE['pydantic_ai/tools.py'].replace('def add(a: int, b: int)', 'def add(a: int, b: int, c: int)')
    test = 'from pydantic_ai import add\n\n\ndef test_add():\n    assert add(1, 2, 3) == 3\n'
    write(line, user, (MESSAGE.format('Add a summand'), {TOOLS: code, 'tests/test_tools.py': test}))
    with pytest.raises(VerifyError) as error:
        check(line)
    ((fault,),) = error.value.faults.values()
    assert fault.problem == 'With all patches, the API is not compatible with that of the base.'
    assert fault.words.strip().endswith('tools.py:1: add(c): Parameter was added as required')


@pytest.mark.slow
def test_verify_of_a_patch_whose_links_all_lead_somewhere_finds_nothing(line: Line, user: User) -> None:
    page = """\
# Tools

## Own { .x #own }

## Twice

## Twice ##

<a id="place"></a> Text.
{#text}

[this](#tools), [own](#own), [twice](#twice_1), [place](#place), [text](#text), [`add()`][pydantic_ai.tools.add],
[`set`][pydantic_ai.tools.Sums.made], `[a](#gone)` <!-- [a](#gone) -->

~~~
[a](#gone)
~~~
"""
    sums = {TOOLS: f'{SUBTRACT[TOOLS]}\n\nclass Sums:\n    def __init__(self) -> None:\n        self.made = 0\n'}
    test = {
        'tests/test_sums.py': 'from pydantic_ai.tools import Sums\n\n\ndef test_sums():\n    assert not Sums().made\n'
    }
    write(line, user, (MESSAGE.format('Add `subtract()`'), SUBTRACT | sums | test | {'docs/links.md': page}))
    assert [verified.faults for verified in check(line)] == [[]]


def test_names_in_modules_that_need_what_is_not_installed_are_taken_on_trust(tmp_path: Path) -> None:
    (package := tmp_path / 'pydantic_ai').mkdir()
    (package / '__init__.py').touch()
    (package / 'optional.py').write_text('import not_there\n')
    names = ['pydantic_ai.optional', 'pydantic_ai.optional.Thing.do', 'pydantic_ai.gone', 'pydantic_ai.gone.Thing']
    done = subprocess.run(
        [sys.executable, '-c', RESOLVE, *names], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == names[2:]


def test_verify_measures_in_any_folder_files_of_any_name_and_processes_that_fork(
    cache: Path, releases: Path, unpacked: Path, tmp_path: Path, user: User
) -> None:
    line = write_line(tmp_path / 'a [b] *c', releases, unpacked)
    shutil.copytree(cache, line.cache)
    package = 'pydantic_ai_slim/pydantic_ai'
    test = """\
import multiprocessing

from pydantic_ai.größe import put


def test_put():
    fork = multiprocessing.get_context('fork')
    queue = fork.Queue()
    process = fork.Process(target=put, args=(queue,))
    process.start()
    process.join()
    assert queue.get() == 1
"""
    code = 'from typing import Any\n\n\ndef put(queue: Any) -> None:\n    queue.put(1)\n\n\ndef left_out() -> None:\n    print()\n'
    files: dict[str, str | bytes] = {f'{package}/größe.py': code, 'tests/test_put.py': test}
    write(line, User(line.tree), (MESSAGE.format('Add `put()`'), files))
    assert left_out_of(line) == f'{package}/größe.py:9'
