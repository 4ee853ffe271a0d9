"""Say for each patch what it needs, how large it is, where it stands with upstream, and what to send first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic_ai_slim.fork.line import patch_name
from series.errors import quoted
from series.folders import write
from series.line import Line, find_lines
from series.message import Message, all_needs, direct_needs, read_message
from series.sizes import changed_lines

PAGE = Path('docs') / 'patches.md'
"""The page that is written."""

_FIRST = 5
"""How many patches are named as those to send first."""


@dataclass(frozen=True)
class Entry:
    """One patch of a line."""

    name: str
    """`topic/slug`."""
    message: Message
    lines: int
    """How many it adds to the package."""
    needs: Sequence[str]
    """The names of the patches that it names."""
    stack: int
    """How many patches a branch with it has below it."""
    carries: int
    """How many patches need it, directly or not."""

    @property
    def is_for_upstream(self) -> bool:
        """Whether it can be sent and hasn't been."""
        return self.message.values('Forwarded') == ['no']


def entries(line: Line) -> list[Entry]:
    """Describe the patches of a line, in their order."""
    messages = {patch: read_message(patch) for patch in line.patches}
    needs = direct_needs(messages)
    stacks = {patch: set(all_needs([patch], needs)) - {patch} for patch in messages}
    return [
        Entry(
            patch_name(patch),
            message,
            len(changed_lines(patch)),
            [patch_name(need) for need in needs[patch]],
            len(stacks[patch]),
            sum(patch in stack for stack in stacks.values()),
        )
        for patch, message in messages.items()
    ]


def first_to_send(found: Sequence[Entry]) -> list[Entry]:
    """Return what to send first: what stands alone, and of that what most others stand on, the smaller ones before the larger."""
    alone = [entry for entry in found if entry.is_for_upstream and not entry.stack]
    return sorted(alone, key=lambda entry: (-entry.carries, entry.lines))[:_FIRST]


def overview(root: Path) -> str:
    """Return the page as Markdown, the newest line first."""
    lines = find_lines(root)
    parts = [
        '# The patches',
        'What each patch needs, its size, and where it stands with upstream, in the order in which they apply. '
        '*Lines* counts what the patch adds to Python modules of the package, with empty lines, comments and docstrings. '
        + '`make overview` writes this page; '
        '`patches/README.md` says how the patches are kept. '
        '[Open a pull request](pull-requests.md) says how to send one.',
    ]
    for line in reversed(lines):
        found = entries(line)
        listed = [
            f'{number}. `{entry.name}`: {_count(entry.lines, "line")}; {_carries(entry.carries)}'
            for number, entry in enumerate(first_to_send(found), 1)
        ]
        rows = [f'| `{entry.name}` | {entry.lines} | {_needs(entry)} | {_upstream(entry.message)} |' for entry in found]
        table = '\n'.join(['| patch | lines | needs | upstream |', '| --- | ---: | --- | --- |', *rows])
        parts += [f'## {line.name}', 'To send first, since each stands alone:', '\n'.join(listed), table]
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
    return quoted(entry.needs) + below


def _upstream(message: Message) -> str:
    addresses = [*message.values('Bug'), *message.values('Closes'), *message.values('Forwarded')]
    shown = [re.sub(r'https://\S+/(\d+)', r'[#\1](\g<0>)', value).replace('|', '\\|') for value in addresses]
    return '<br>'.join(value for value in shown if value != 'no')


def write_overview(root: Path) -> None:
    """Write the page."""
    write(root / PAGE, overview(root))
