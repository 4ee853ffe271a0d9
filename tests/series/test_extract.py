"""`extract` writes the tree back, byte for byte, and refuses what would lose work.

Each folder of `scenarios/` is a test: with the patches of `before/`, the tree is made, `steps.sh` is run in it, and the
extract must say what `says.txt` holds and give the patches of `after/`. A scenario without `after/` must change nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pydantic_ai_slim.fork.line import load_line
from pydantic_ai_slim.fork.package import package_digest
from pydantic_ai_slim.fork.patches import apply_patches, copy_package
from series import tree
from series.errors import ApplyError, SeriesError
from series.git import Git
from series.line import Line, pin_patched
from series.verbs.apply import apply
from series.verbs.extract import extract, patched_digest
from tests.series.upstream import PACKAGE, User, commit_patches, quiet, refusal, write_series

SCENARIOS = sorted(Path(__file__).with_name('scenarios').iterdir())
TOOLS = 'pydantic_ai_slim/pydantic_ai/tools.py'
SERIES: list[tuple[str, dict[str, str | bytes]]] = [
    ('Add one', {'tests/one.txt': '1\n'}),
    ('Add two', {'tests/two.txt': '2\n'}),
    ('Add three', {'tests/three.txt': '3\n'}),
]


@pytest.fixture
def series(line: Line, user: User) -> Line:
    """A line with three patches, and the tree made of them."""
    return write_series(line, *SERIES)


def read(folder: Path) -> dict[str, bytes]:
    paths = [folder / 'series', *folder.rglob('*.patch')]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@pytest.mark.parametrize('scenario', SCENARIOS, ids=[path.name for path in SCENARIOS])
def test_extract_scenario(scenario: Path, line: Line, user: User) -> None:
    shutil.copytree(scenario / 'before', line.folder, dirs_exist_ok=True)
    apply(line, quiet)
    steps = scenario / 'steps.sh'
    if steps.exists():
        subprocess.run(['sh', '-eu', str(steps)], cwd=line.tree, check=True, capture_output=True)
    pins = line.folder / 'line.toml'
    pins.write_text(pin_patched(pins.read_text(), patched_digest(Git(line.tree))))
    says, after = scenario / 'says.txt', scenario / 'after'
    assert extract(line, quiet) == (says.read_text().splitlines() if says.exists() else [])
    assert read(line.folder) == read(after if after.exists() else scenario / 'before')

    # From there on nothing changes any more.
    head = apply(line, quiet)
    assert extract(line, quiet) == []
    shutil.rmtree(line.tree)
    assert apply(line, quiet) == head


def test_extract_of_an_inserted_patch_renames_no_other(series: Line, user: User) -> None:
    before = read(series.folder)
    user.commit('Add one and a half', {'tests/half.txt': '1.5\n'})
    user.git('-c', 'sequence.editor=sed -i "1{h;d};2{G}"', 'rebase', '--quiet', '--interactive', 'HEAD~2')
    assert user.subjects() == ['Add one', 'Add two', 'Add one and a half', 'Add three']
    assert extract(series, quiet) == ['added fixes/add-one-and-a-half']
    after = read(series.folder)
    assert {name: after[name] for name in before if name != 'series'}.items() <= before.items()
    assert [patch.stem for patch in series.patches] == ['add-one', 'add-two', 'add-one-and-a-half', 'add-three']


def test_extract_leaves_headings_above_their_patches_and_takes_along_what_is_said_of_one(
    series: Line, user: User
) -> None:
    listed = series.folder / 'series'
    listed.write_text(
        '# The order.\n\n# fixes: faults.\n# Goes away with the first.\nfixes/add-one.patch\n'
        '# Goes away with the second.\nfixes/add-two.patch\n\n# more: others.\nfixes/add-three.patch\n'
    )
    apply(series, quiet)
    before = listed.read_text()
    for first in ('two', 'one'):  # within a topic, there and back
        user.git('-c', 'sequence.editor=sed -i "1{h;d};2{G}"', 'rebase', '--quiet', '--interactive', 'refs/series/base')
        assert extract(series, quiet) == ['changed the order']
        assert re.search(rf'# fixes: faults\.\n# .*\nfixes/add-{first}', listed.read_text())
    assert listed.read_text() == before
    user.git('-c', 'sequence.editor=sed -i "1{h;d};3{G}"', 'rebase', '--quiet', '--interactive', 'refs/series/base')
    assert user.subjects() == ['Add two', 'Add three', 'Add one']
    assert extract(series, quiet) == ['changed the order']
    assert listed.read_text() == (
        '# The order.\n\n# fixes: faults.\n# Goes away with the second.\nfixes/add-two.patch\n\n# more: others.\n'
        'fixes/add-three.patch\n# Goes away with the first.\nfixes/add-one.patch\n'
    )
    user.git('reset', '--quiet', '--hard', 'HEAD~1')
    assert extract(series, quiet) == ['deleted fixes/add-one']
    assert listed.read_text() == (
        '# The order.\n\n# fixes: faults.\n# Goes away with the second.\nfixes/add-two.patch\n\n# more: others.\n'
        'fixes/add-three.patch\n'
    )


def test_extract_keeps_all_that_the_list_says_of_what_stays(series: Line, user: User) -> None:
    listed = series.folder / 'series'
    listed.write_text(
        '# The order.\n\n# A note.\n\n# fixes: faults.\nfixes/add-one.patch\n# What the second does.\n'
        'fixes/add-two.patch\nfixes/add-three.patch\n# Below.\n\n# To come: four.\n'
    )
    before = listed.read_text()
    apply(series, quiet)
    user.commit('Add four', {'tests/four.txt': '4\n'})
    assert extract(series, quiet) == ['added fixes/add-four']
    assert listed.read_text() == before.replace('add-three.patch\n', 'add-three.patch\nfixes/add-four.patch\n')


def test_extract_leaves_a_patch_be_of_which_only_the_ids_of_files_differ(line: Line, user: User) -> None:
    apply(line, quiet)
    user.commit('Add one', {'tests/long.txt': '2\n' * 20})
    user.commit('Change the end', {'tests/long.txt': '2\n' * 20 + '3\n'})
    extract(line, quiet)
    before = line.patches[1].read_bytes()
    (line.tree / 'tests/long.txt').write_text('1\n' + '2\n' * 19 + '3\n')
    user.git('commit', '--quiet', '--all', '--fixup', 'HEAD~1')
    user.git('-c', 'sequence.editor=true', 'rebase', '--quiet', '--interactive', '--autosquash', 'refs/series/base')
    assert extract(line, quiet) == ['changed fixes/add-one']
    assert line.patches[1].read_bytes() == before
    assert extract(line, quiet) == []
    apply(line, quiet)
    assert extract(line, quiet) == []


@pytest.mark.parametrize(
    ('subject', 'error'),
    [
        ('Add `one`', r'Two commits would be written to `fixes/add-one\.patch`'),
        ('修复', 'No file can be named after the subject `修复`'),
        ('Add ' + 'x' * 400, 'No file can be named after the subject `Add x+`'),
    ],
    ids=['as another', 'without letters', 'long'],
)
def test_extract_of_patches_that_cannot_have_their_names_refuses(
    series: Line, user: User, subject: str, error: str
) -> None:
    user.commit(subject, {'tests/other.txt': '1\n'})
    with pytest.raises(SeriesError, match=f'^{error}'):
        extract(series, quiet)


# What stays


def test_extract_keeps_what_else_is_in_the_folder(series: Line, user: User) -> None:
    (series.folder / 'notes').mkdir()
    (series.folder / 'notes' / 'todo.md').write_text('Mine\n')
    toml = (series.folder / 'line.toml').read_bytes()
    user.commit('Add four', {'tests/four.txt': '4\n'})
    assert extract(series, quiet) == ['added fixes/add-four']
    assert (series.folder / 'notes' / 'todo.md').read_text() == 'Mine\n'
    assert (series.folder / 'line.toml').read_bytes() == toml
    assert sorted(path.name for path in series.folder.parent.iterdir()) == [series.name]


def test_extract_does_not_rewrite_an_unchanged_patch(series: Line, user: User) -> None:
    def state(patch: Path) -> tuple[int, int]:
        return patch.stat().st_ino, patch.stat().st_mtime_ns

    first, second, third = map(state, series.patches)
    (series.tree / 'tests/three.txt').write_text('three\n')
    user.git('commit', '--quiet', '--all', '--amend', '--no-edit')
    assert extract(series, quiet) == ['changed fixes/add-three']
    assert [state(patch) for patch in series.patches[:2]] == [first, second]
    assert state(series.patches[2]) != third


def test_extract_reads_no_configuration_of_the_tree(series: Line, user: User) -> None:
    before = read(series.folder)
    settings = """
        color.ui=always core.abbrev=5 core.compression=9 core.quotePath=false diff.algorithm=patience diff.context=1 diff.external=false
        diff.interHunkContext=20 diff.mnemonicPrefix=true diff.noprefix=true diff.orderFile=/dev/zero diff.relative=true
        diff.renames=false diff.statGraphWidth=5 diff.statNameWidth=5 diff.suppressBlankEmpty=true format.attach=yes
        diff.wsErrorHighlight=all format.coverLetter=true format.encodeEmailHeaders=false format.filenameMaxLength=12
        format.forceInBodyFrom=true format.from=other@example.com format.headers=X-Mine:yes format.mboxrd=true
        format.noprefix=true format.notes=true format.numbered=true format.outputDirectory=elsewhere format.pretty=oneline
        format.signOff=true format.signature=me format.suffix=.txt format.thread=true format.to=other@example.com
        format.useAutoBase=true i18n.logOutputEncoding=latin1 log.follow=true log.showSignature=true
        status.showUntrackedFiles=no
    """
    for setting in settings.split():
        user.git('config', *setting.split('=', 1))
    extract(series, quiet)
    assert read(series.folder) == before


def test_extract_of_a_commit_by_someone_with_other_line_ends_keeps_those_of_the_files(series: Line, user: User) -> None:
    (Path(os.environ['HOME']) / '.gitconfig').write_text('[core]\n    autocrlf = true\n')
    user.commit('Add four', {'tests/four.txt': b'4\r\n'})
    extract(series, quiet)
    assert b'\n+4\r\n' in series.patches[3].read_bytes()


def test_extract_pins_the_package_with_the_patches(series: Line, user: User, tmp_path: Path, unpacked: Path) -> None:
    def patched() -> str:
        (tree := tmp_path / 'tree').mkdir()
        copy_package(unpacked, tree)
        apply_patches(series.patches, tree)
        digest = package_digest(tree)
        shutil.rmtree(tree)
        return digest

    text = (series.folder / 'line.toml').read_text()
    series_pin = load_line(series.folder).patched
    assert series_pin == patched()

    user.commit('Swap the summands', {TOOLS: PACKAGE['pydantic_ai/tools.py'].replace('a + b', 'b + a')})
    assert extract(series, quiet) == ['added fixes/swap-the-summands']
    assert load_line(series.folder).patched == patched() != series_pin
    now = load_line(series.folder).patched
    assert (series.folder / 'line.toml').read_text() == text.replace(str(series_pin), str(now))

    # When the patches are as they were, too.
    (series.folder / 'line.toml').write_text(text.replace('patched', '#'))
    assert extract(series, quiet) == ['changed line.toml']
    assert load_line(series.folder).patched == now
    assert extract(series, quiet) == []


def test_extract_of_a_symlink_in_the_package_refuses(series: Line, user: User) -> None:
    before = read(series.folder)
    (series.tree / 'pydantic_ai_slim/pydantic_ai/passwords').symlink_to('/etc/passwd')
    user.commit('Add passwords', {})
    assert refusal(extract, series, quiet) == (
        'The commit `HEAD` has what is no regular file in `pydantic_ai_slim/pydantic_ai`: `passwords`. Only regular files go '
        'into the fork.\n'
        'Have the commit that adds it write a file in its place, then run the same command again.'
    )
    assert read(series.folder) == before


def test_extract_of_conflict_marks_names_the_files(series: Line, user: User) -> None:
    user.commit('Underline', {'tests/one.txt': 'One\n=======\n'})
    assert extract(series, quiet) == ['added fixes/underline']
    user.git('switch', '--quiet', '--create', 'side', 'HEAD~1')
    user.commit('Change one', {'tests/one.txt': 'one\n'})
    user.git('switch', '--quiet', 'series')
    done = subprocess.run(['git', 'cherry-pick', 'side'], cwd=series.tree, capture_output=True, check=False)
    assert done.returncode
    user.git('add', '--all')
    user.git('cherry-pick', '--continue')
    before = read(series.folder)
    with pytest.raises(SeriesError) as error:
        extract(series, quiet)
    assert error.value.problem == (
        'The commits of the tree `build/1.0.0` are not a series:\n- `Change one` has conflict marks in `tests/one.txt`.'
    )
    assert read(series.folder) == before


@pytest.mark.parametrize('moment', ['Writing the patches', 'Applying what was written'])
def test_extract_over_patches_that_are_changed_meanwhile_refuses(series: Line, user: User, moment: str) -> None:
    """The digest is that of the patches as they were read."""
    user.commit('Add four', {'tests/four.txt': '4\n'})

    def report(step: str, done: int = 0, of: int | None = None) -> None:
        if step == moment:
            series.patches[1].write_text('Another patch\n')

    with pytest.raises(SeriesError) as error:
        extract(series, report)
    assert error.value.problem == (
        'Someone changed the patches in `patches/1.0.0` after the tree `build/1.0.0` was made from them, and the tree knows '
        'nothing of that.'
    )
    assert series.patches[1].read_text() == 'Another patch\n'
    assert len(series.patches) == 3


def test_extract_after_an_apply_during_which_patches_changed_refuses(series: Line, user: User) -> None:
    def report(step: str, done: int = 0, of: int | None = None) -> None:
        if step == 'Applying `fixes/add-two`':
            series.patches[1].write_text('Another patch\n')

    apply(series, report)
    user.commit('Add four', {'tests/four.txt': '4\n'})
    with pytest.raises(SeriesError, match=r'^Someone changed the patches'):
        extract(series, quiet)
    assert series.patches[1].read_text() == 'Another patch\n'


# What is refused


def test_extract_without_a_tree_refuses(line: Line) -> None:
    assert refusal(extract, line, quiet) == 'There is no tree `build/1.0.0`.\nRun `make apply LINE=1.0.0` to make it.'


def test_extract_of_a_tree_without_commits_refuses(series: Line, user: User) -> None:
    before = read(series.folder)
    user.git('reset', '--quiet', '--hard', tree.BASE)
    assert refusal(extract, series, quiet) == (
        'The tree `build/1.0.0` has no commits after the base, so there is nothing to extract; every patch of '
        '`patches/1.0.0` would be deleted.\n'
        'Commit your changes in `build/1.0.0`, or make it again with `make apply LINE=1.0.0`.'
    )
    assert read(series.folder) == before


@pytest.mark.parametrize(
    'where', [['--detach', 'HEAD~1'], ['-b', 'mine', 'HEAD~1']], ids=['on no branch', 'on another']
)
def test_extract_of_something_else_than_the_series_refuses(series: Line, user: User, where: list[str]) -> None:
    before = read(series.folder)
    user.git('checkout', '--quiet', *where)
    assert refusal(extract, series, quiet) == (
        'The tree `build/1.0.0` is not on its branch `series`, which is what `make extract LINE=1.0.0` writes.\n'
        'Go back to it with `git -C build/1.0.0 checkout series`; or make what is checked out the series with '
        '`git -C build/1.0.0 checkout -B series`. Then run `make extract LINE=1.0.0` again.'
    )
    assert read(series.folder) == before
    user.git('checkout', '--quiet', '-B', 'series')
    assert extract(series, quiet) == ['deleted fixes/add-three']


def test_extract_on_another_first_commit_refuses(series: Line, user: User) -> None:
    before = read(series.folder)
    user.git('checkout', '--quiet', '--orphan', 'other')
    user.git('commit', '--quiet', '--message', 'Not the base')
    user.git('checkout', '--quiet', '-B', 'series')
    assert refusal(extract, series, quiet) == (
        'The first commit of the tree `build/1.0.0` is not the base that `make apply` made there, so its patches would '
        'not apply to the base.\n'
        'Put your commits onto the base with `git -C build/1.0.0 rebase --onto refs/series/base FIRST`, where FIRST is '
        'the commit before them, then run `make extract LINE=1.0.0` again.'
    )
    assert read(series.folder) == before


def test_extract_on_the_base_of_another_line_toml_refuses(series: Line) -> None:
    later = replace(series, settings=replace(series.settings, version='1.1.0'))
    assert refusal(extract, later, quiet) == (
        'The base of the tree `build/1.0.0` is not the one that `patches/1.0.0/line.toml` names now.\n'
        'Run `mv build/1.0.0 build/1.0.0.mine`, `make apply LINE=1.0.0` and `git -C build/1.0.0 fetch ../1.0.0.mine`. Then take over '
        'what you need with `git -C build/1.0.0 cherry-pick`, or everything with `git -C build/1.0.0 reset --hard '
        'FETCH_HEAD` if it stands on the same base, and run `make extract LINE=1.0.0` again.\n'
        '\n'
        '    the tree stands on:\n'
        '    pydantic-ai-slim 1.0.0\n'
        '\n'
        f'    The unmodified release, content {series.digest},\n'
        f'    with the settings of pydantic-ai 0.9.0, archive {series.settings.digest}.\n'
        '\n'
        '    `line.toml` names:\n'
        '    pydantic-ai-slim 1.0.0\n'
        '\n'
        f'    The unmodified release, content {series.digest},\n'
        f'    with the settings of pydantic-ai 1.1.0, archive {series.settings.digest}.'
    )


def test_extract_of_what_is_no_series_names_everything_at_once(series: Line, user: User) -> None:
    before = read(series.folder)
    user.commit('fixup! Add one', {'tests/one.txt': 'one\n'})
    user.commit('squash! Add two', {'tests/two.txt': 'two\n'})
    user.git('commit', '--quiet', '--allow-empty', '--message', 'Start the tests again')
    user.git('switch', '--quiet', '--create', 'side', 'HEAD~1')
    user.commit('Add four', {'tests/four.txt': '4\n'})
    user.git('switch', '--quiet', 'series')
    user.git('merge', '--quiet', '--no-ff', '--message', 'Merge the side', 'side')
    with pytest.raises(SeriesError) as error:
        extract(series, quiet)
    # Git puts the two sides of a merge into an order that is its own.
    first, *faults, last = str(error.value).splitlines()
    assert first == 'The commits of the tree `build/1.0.0` are not a series:'
    assert sorted(faults) == [
        '- `Merge the side` is a merge, which no patch can hold.',
        '- `Start the tests again` changes nothing.',
        '- `fixup! Add one` still waits to be folded into the commit that it belongs to.',
        '- `squash! Add two` still waits to be folded into the commit that it belongs to.',
    ]
    assert last == (
        'Put them in order with `git -C build/1.0.0 rebase --interactive --autosquash refs/series/base`, then run '
        '`make extract LINE=1.0.0` again.'
    )
    assert read(series.folder) == before


def test_extract_of_a_message_that_git_would_cut_refuses(series: Line, user: User) -> None:
    before = read(series.folder)
    user.commit('Add four\n\nThe reason.\n\n---\n\nThe rest of the reason.', {'tests/four.txt': '4\n'})
    with pytest.raises(SeriesError) as error:
        extract(series, quiet)
    assert f'{error.value.problem}\n{error.value.remedy}' == (
        'The commit written as `fixes/add-four` does not come back the same when it is applied from there, because '
        'something in its message reads like a part of a mail.\n'
        'Reword or split that commit with `git -C build/1.0.0 rebase --interactive refs/series/base`, then run '
        '`make extract LINE=1.0.0` again.'
    )
    assert '-The rest of the reason.' in error.value.words.splitlines()
    assert read(series.folder) == before


def test_extract_of_a_message_with_a_diff_refuses(series: Line, user: User) -> None:
    message = (
        f'Add four\n\nThis makes:\n\ndiff --git a/{TOOLS} b/{TOOLS}\n--- a/{TOOLS}\n+++ b/{TOOLS}\n@@ -1 +1 @@\n-a\n+b'
    )
    user.commit(message, {'tests/four.txt': '4\n'})
    with pytest.raises(SeriesError) as error:
        extract(series, quiet)
    assert error.value.problem == ('The commit written as `fixes/add-four` cannot be applied again from there.')
    assert f'error: patch failed: {TOOLS}:1' in error.value.words


def test_extract_over_patches_that_someone_changed_refuses(series: Line, user: User) -> None:
    first = series.patches[0]
    first.write_text(first.read_text().replace('Subject: Add one', 'Subject: Add number one'))
    changed = read(series.folder)
    user.commit('Add four', {'tests/four.txt': '4\n'})
    with pytest.raises(SeriesError) as error:
        extract(series, quiet)
    assert error.value.problem.startswith('Someone changed the patches in `patches/1.0.0` after the tree')
    assert error.value.remedy.startswith('Run `mv build/1.0.0 build/1.0.0.mine`')
    assert read(series.folder) == changed

    # What the error says works.
    series.tree.rename(series.tree.with_name('1.0.0.mine'))
    apply(series, quiet)
    user.git('fetch', '--quiet', '../1.0.0.mine')
    user.git('cherry-pick', 'FETCH_HEAD')
    assert extract(series, quiet) == ['added fixes/add-four']
    assert user.subjects() == ['Add number one', 'Add two', 'Add three', 'Add four']


def test_extract_of_what_a_stopped_apply_left_refuses(series: Line, user: User) -> None:
    commit_patches(series)
    second = series.patches[1]
    second.write_text(
        second.read_text().replace('+++ b/tests/two.txt', '+++ b/tests/one.txt').replace('new file mode 100644\n', '')
    )
    before = read(series.folder)
    with pytest.raises(ApplyError):
        apply(series, quiet)
    user.git('am', '--quit')
    assert user.subjects() == ['Add one']
    assert refusal(extract, series, quiet) == (
        '`make apply` stopped at `patches/1.0.0/fixes/add-two.patch`, and the tree `build/1.0.0` has only 1 commits for '
        'the 3 patches of `patches/1.0.0`, so the rest of the series would be deleted.\n'
        'Delete the tree and run `make apply LINE=1.0.0` to get back to where it stopped. To drop a patch on purpose, delete its '
        'file before that.'
    )
    assert read(series.folder) == before
