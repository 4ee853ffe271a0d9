"""Say for each patch what it needs, how large it is, what of it the lines share, what upstream has said, and what to send first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import tomli

from series.errors import OverviewError
from series.folders import write
from series.line import Line, find_lines
from series.message import Message, read_message
from series.needs import all_needs, direct_needs
from series.sizes import added_lines, sizes

PAGE = Path('docs') / 'patches.md'
"""The page that is written."""

SAID = Path('patches') / 'upstream.toml'
"""What upstream has said, by the subjects of patches."""

_URL = 'https://github.com/pydantic/pydantic-ai/issues'

_FIRST = 5
"""How many patches are named as those to send first."""


@dataclass(frozen=True)
class Said:
    """An issue or a pull request of upstream's that is about the subject of a patch."""

    number: int
    kind: str
    """`issue` or `pull request`."""
    state: str
    """`open`, `closed` or `merged`, when it was read."""
    about: str
    """What it says, in a few words."""
    opened: date | None = None
    """When it was opened, if what was read tells."""


@dataclass(frozen=True)
class Entry:
    """One patch of a line."""

    number: int
    message: Message
    lines: int
    """How many it adds to the package."""
    common: int | None
    """How many of them the newest two lines with this patch share, or `None` if only one line has it."""
    needs: Sequence[int]
    """The numbers of the patches that it names."""
    stack: int
    """How many patches a branch with it has below it."""
    carries: int
    """How many patches need it, directly or not."""
    said: Sequence[Said]

    @property
    def is_for_upstream(self) -> bool:
        """Whether it can be sent and hasn't been."""
        return self.message.values('Upstream-Status') == ['Pending']


def entries(line: Line, said: Mapping[str, Sequence[Said]], common: Mapping[str, int | None]) -> list[Entry]:
    """Describe the patches of a line, in their order."""
    messages = {patch: read_message(patch) for patch in line.patches}
    needs = direct_needs(messages)
    numbers = {patch: number for number, patch in enumerate(messages, 1)}
    stacks = {patch: set(all_needs([patch], needs)) - {patch} for patch in messages}
    return [
        Entry(
            numbers[patch],
            message,
            len(added_lines(patch)),
            common[message.subject],
            [numbers[need] for need in needs[patch]],
            len(stacks[patch]),
            sum(patch in stack for stack in stacks.values()),
            said.get(message.subject, ()),
        )
        for patch, message in messages.items()
    ]


def first_to_send(found: Sequence[Entry]) -> list[Entry]:
    """Return what to send first: what stands alone, and of that what most others stand on, the smaller ones before the larger."""
    alone = [entry for entry in found if entry.is_for_upstream and not entry.stack]
    return sorted(alone, key=lambda entry: (-entry.carries, entry.lines))[:_FIRST]


def read_said(root: Path) -> tuple[date, dict[str, list[Said]]]:
    """Read when upstream was asked and what it has said, by the subjects of patches.

    Raises:
        OverviewError: A patch that it is about is on no line any more.
    """
    data: dict[str, Any] = tomli.loads((root / SAID).read_text('utf-8'))
    read = data.pop('read')
    said = {subject: [Said(**one) for one in table['said']] for subject, table in data.items()}
    subjects = {read_message(patch).subject for line in find_lines(root) for patch in line.patches}
    if gone := sorted(said.keys() - subjects):
        raise OverviewError(
            f'`{SAID.as_posix()}` says something of patches that no line has:\n'
            + '\n'.join(f'- {name}' for name in gone),
            'Give each the subject that its patch has now, or remove it, then run `make overview` again.',
        )
    return read, said


def overview(root: Path) -> str:
    """Return the page as Markdown, the newest line first.

    Raises:
        OverviewError: As `read_said()`.
    """
    read, said = read_said(root)
    parts = [
        '# The patches',
        f'What each patch needs, its size, and what upstream has said about its subject, as read on {read}. '
        + '*Lines* counts what the patch adds to Python modules of the package, with empty lines, comments and docstrings; *common* counts those that the patch of the same subject adds on the other line too. '
        + '`make overview` writes this page; what upstream has said is kept in `patches/upstream.toml`. '
        + '[Open a pull request](pull-requests.md) says how to send one.',
    ]
    lines = find_lines(root)
    common = {size.subject: size.common for size in sizes(lines)}
    for line in reversed(lines):
        found = entries(line, said, common)
        listed = [
            f'{number}. patch {entry.number}, *{entry.message.subject}*: {_count(entry.lines, "line")}; {_carries(entry.carries)}'
            for number, entry in enumerate(first_to_send(found), 1)
        ]
        rows = ['| | patch | lines | common | needs | upstream |', '| ---: | --- | ---: | ---: | --- | --- |']
        rows += [
            f'| {entry.number} | {entry.message.subject} | {entry.lines} | {_common(entry)} | {_needs(entry)} | {_status(entry)} |'
            for entry in found
        ]
        parts += [f'## {line.name}', 'To send first, since each stands alone:', '\n'.join(listed), '\n'.join(rows)]
    return '\n\n'.join(part for part in parts if part) + '\n'


def _carries(number: int) -> str:
    return (
        f'{number} other {"patch stands" if number == 1 else "patches stand"} on it'
        if number
        else 'nothing stands on it'
    )


def _count(number: int, what: str) -> str:
    return f'{number} {what}{"" if number == 1 else "s"}'


def _needs(entry: Entry) -> str:
    if not entry.needs:
        return 'stands alone'
    below = f'; {entry.stack} in all' if entry.stack > len(entry.needs) else ''
    return ', '.join(map(str, entry.needs)) + below


def _common(entry: Entry) -> str:
    return '–' if entry.common is None else str(entry.common)


def _status(entry: Entry) -> str:
    status = ''.join(entry.message.values('Upstream-Status'))
    parts = [] if status == 'Pending' else [status.replace('|', '\\|')]
    for one in entry.said:
        when = f', {one.opened}' if one.opened else ''
        parts.append(f'[#{one.number}]({_URL}/{one.number}), {one.kind}, {one.state}{when}: {one.about}')
    return '<br>'.join(parts)


def write_overview(root: Path) -> bool:
    """Write the page, and say whether that changed it.

    Raises:
        OverviewError: As `read_said()`.
    """
    page, text = root / PAGE, overview(root)
    if page.exists() and page.read_text('utf-8') == text:
        return False
    write(page, text)
    return True
