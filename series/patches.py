"""Write commits as patches, the same on every machine, find a patch by its name, and keep the list of a series."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path

from pydantic_ai_slim.fork.line import patch_name
from series import tree
from series.errors import SeriesError, quoted
from series.git import Git
from series.line import Line
from series.message import read_message

_FORMAT_PATCH = (
    # The tree's own configuration is the user's to change, so every setting that shows in a patch is beaten here.
    *('-c', 'diff.suppressBlankEmpty=false', '-c', 'core.quotePath=true', '-c', 'i18n.logOutputEncoding=UTF-8'),
    # How binary content is compressed.
    *('-c', 'core.compression=-1'),
    *('-c', 'format.mboxrd=false', '-c', 'format.forceInBodyFrom=false', '-c', 'diff.statGraphWidth=0'),
    'format-patch',
    '--quiet',
    '--keep-subject',
    '--zero-commit',
    # It is the version of git.
    '--no-signature',
    # Abbreviations grow with the number of objects in the repository.
    '--full-index',
    # Three dashes end the message only where a summary of the files follows; without them it can't hold `diff`.
    *('--patch', '--stat=72', '--summary', '--binary'),
    # A moved file takes a few lines, not all of upstream's text.
    *('--find-renames=50%', '-l0', '--diff-algorithm=myers', '--indent-heuristic', f'-O{os.devnull}'),
    *('--unified=3', '--inter-hunk-context=0', '--src-prefix=a/', '--dst-prefix=b/', '--submodule=short'),
    *('--no-relative', '--no-ext-diff', '--no-textconv', '--no-color', '--no-notes', '--no-base', '--no-attach'),
    *('--no-thread', '--no-cover-letter', '--no-numbered', '--no-signoff', '--encode-email-headers'),
    *('--no-add-header', '--no-to', '--no-cc', '--no-from', '--no-in-reply-to'),
    *('--start-number=1', '--suffix=.patch', '--filename-max-length=64'),
)


def write_patches(git: Git, folder: Path, commits: str = f'{tree.BASE}..HEAD') -> list[Path]:
    """Write commits of a tree as patches into a new folder, and return them in order.

    Args:
        commits: The commits, as git names a range; by default the series.
    """
    git.run(*_FORMAT_PATCH, '--output-directory', str(folder), commits)
    return sorted(folder.glob('*.patch'))


def without_index(patch: Path) -> bytes:
    """Return a patch without the lines that name its files before and after, which other patches change too."""
    return re.sub(rb'^index [0-9a-f]{40}\.\.[0-9a-f]{40}', b'index', patch.read_bytes(), flags=re.MULTILINE)


def slug(subject: str) -> str:
    """Return what a patch with that subject is called."""
    return re.sub(r'[^a-z0-9]+', '-', subject.lower().replace("'", '')).strip('-')


def find_patch(line: Line, name: str) -> Path:
    """Return the patch of that name: a slug, or `topic/slug`, or as much of it as fits no other."""
    topic, _, part = '/'.join(name.lower().removesuffix('.patch').split('/')[-2:]).rpartition('/')
    patches = line.patches
    here = [patch for patch in patches if topic in ('', patch.parent.name)]
    found = [patch for patch in here if patch.stem == part] or [patch for patch in here if part and part in patch.stem]
    if len(found) == 1:
        return found[0]
    stems = [patch.stem for patch in patches]
    like = [stem for stem in stems if part and part in stem] + get_close_matches(part, stems, n=3, cutoff=0.4)
    near = found or [patch for stem in dict.fromkeys(like) for patch in patches if patch.stem == stem]
    raise SeriesError(
        f'Several patches have `{name}` in their names, in `{line.show(line.folder)}`.'
        if found
        else f'There is no patch `{name}` in `{line.show(line.folder)}`.',
        f'Name one of these: {quoted(patch_name(patch) for patch in near)}.'
        if near
        else '`docs/patches.md` lists the patches.',
    )


def write_series(git: Git, folder: Path, before: Mapping[str, str], listed: Path | None) -> list[Path]:
    """Write the commits of a tree as the patches of a line, with their list, and return them in order.

    Args:
        before: The paths of the patches that there were, by their subjects, in order. A patch stays where it is as long as its
            subject does. Any other is named after its subject, in the topic of the one that it takes the place of, or else of
            the one before it.
        listed: The list that there was, if any.
    """
    subjects = git.lines('log', '--reverse', '--format=%s', f'{tree.BASE}..HEAD')
    places = _place(subjects, before)
    if odd := next((subject for subject in subjects if not 0 < len(slug(subject)) < 200), None):
        raise SeriesError(
            f'No file can be named after the subject `{odd:.80}`.',
            f'Give its commit one of up to 200 letters, with `git -C {git.folder} rebase --interactive {tree.BASE}`.',
        )
    written = write_patches(git, folder / 'numbered')
    for patch, (path, _), subject in zip(written, places, subjects, strict=True):
        if (folder / path).exists():
            raise SeriesError(
                f'Two commits would be written to `{path}`; the second is `{subject}`.',
                f'Give one another subject with `git -C {git.folder} rebase --interactive {tree.BASE}`, then run the same '
                'command again.',
            )
        (folder / path).parent.mkdir(exist_ok=True)
        patch.rename(folder / path)
    (folder / 'numbered').rmdir()
    (folder / 'series').write_text(_relist(listed.read_text('utf-8') if listed else '', dict(places)), 'utf-8')
    return [folder / path for path, _ in places]


def write_again(git: Git, folder: Path, before: Sequence[Path]) -> list[Path]:
    """Write the commits of a tree as `write_series()` does, and leave what only has other ids of files as it was.

    Args:
        before: Copies of the patches that there were, in order, beside a copy of their list.
    """
    known = {read_message(patch).subject: f'{patch_name(patch)}.patch' for patch in before}
    patches = write_series(git, folder, known, before[0].parent.parent / 'series' if before else None)
    old = {patch_name(patch): patch for patch in before}
    for patch in patches:
        if (same := old.get(patch_name(patch))) and without_index(same) == without_index(patch):
            shutil.copyfile(same, patch)
    return patches


def _place(subjects: Sequence[str], before: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return where each patch goes, and the path of the patch that it is or takes the place of, or nothing."""
    places: list[tuple[str, str]] = []
    order, at = [*before], -1
    for subject in subjects:
        if subject in before and before[subject] not in dict(places):
            at = order.index(subject)
            places.append((before[subject], before[subject]))
            continue
        replaced = at + 1 < len(order) and order[at + 1] not in subjects
        at += replaced
        known = before[order[max(at, 0)]] if order else 'fixes/'
        places.append((f'{known.partition("/")[0]}/{slug(subject)}.patch', known if replaced else ''))
    return places


@dataclass
class _Section:
    """A part of a list: its heading, and the paths below it."""

    heading: list[str] = field(default_factory=list[str])
    paths: list[str] = field(default_factory=list[str])


def _relist(listed: str, places: Mapping[str, str]) -> str:
    """Return a list with other paths.

    A heading stays above its patches, but for those that were moved elsewhere, and what is said of a patch goes with the patch.
    """
    top, sections, comments = _read_list(listed)
    before = [path for section in sections for path in section.paths]
    now = [known for known in places.values() if known]
    blocks = SequenceMatcher(None, before, now, False).get_matching_blocks()
    stay = {path for _, start, size in blocks for path in now[start : start + size]}
    headings: dict[str, list[str]] = {}
    for section in sections:
        if there := [path for path in now if path in section.paths]:
            first = now.index(next((path for path in there if path in stay), there[0]))
            while first and now[first - 1] in section.paths:
                first -= 1
            headings[now[first]] = section.heading
    lines = top
    for path, known in places.items():
        lines += [*headings.get(known, ()), *comments.get(known, ()), path]
    below = [text for section in sections if not section.paths for text in section.heading]
    return '\n'.join([*lines, *below]) + '\n'


def _read_list(listed: str) -> tuple[list[str], list[_Section], dict[str, list[str]]]:
    """Return the lines above the first blank one, the parts of a list, and what is said of each path.

    A blank line below a path begins a heading. What is said of its first path begins with `# Goes away`. What stands below
    the last path is a part without any.
    """
    top: list[str] = []
    sections = [_Section()]
    comments: dict[str, list[str]] = {}
    comment: list[str] = []
    for text in listed.removesuffix('\n').split('\n') if listed else ():
        section = sections[-1]
        if text and not text.startswith('#'):
            section.paths.append(text)
            comments[text], comment = comment, []
        elif comment or text.startswith('# Goes away') or (text and section.paths):
            comment.append(text)
        elif not text and (section.paths or len(sections) == 1):
            sections.append(_Section([text]))
        else:
            (section.heading if len(sections) > 1 else top).append(text)
    return top, [*sections, _Section(comment)], comments
