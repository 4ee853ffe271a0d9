"""Check the message of a patch: its subject, its body and its trailers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from series.git import Git

_WIDTH = 72
_WORDS = range(30, 601)
_TRAILER = re.compile(r'([A-Z][A-Za-z-]*): +\S.*')
_STATUS = re.compile(r'Pending|Submitted \[https://\S+\]|Inappropriate \[[^]]+\]')
# Words of a command that end like those of a report.
_COMMANDS = {'bring', 'embed', 'feed', 'focus', 'need', 'seed', 'shed', 'speed', 'string', 'alias', 'bias', 'canvas'}


def message_faults(patch: Path, scratch: Path) -> list[str]:
    """Say everything that is wrong with the message of a patch.

    Args:
        patch: The patch file.
        scratch: A folder to put temporary files into.
    """
    # As `git am` will read it, with `[…]` in the subject kept.
    with patch.open('rb') as mail:
        read = Git(scratch).run('mailinfo', '-b', '--encoding=UTF-8', '--no-scissors', 'message', 'diff', stdin=mail)
    headers = dict(line.split(': ', 1) for line in read.splitlines() if ': ' in line)
    body = (scratch / 'message').read_text('utf-8').strip()
    faults = [*_subject_faults(headers.get('Subject', '').strip()), *_body_faults(body), *_trailer_faults(body)]
    # One such line is the end of the message, where `git format-patch` put it.
    if patch.read_bytes().split(b'\ndiff --git ')[0].splitlines().count(b'---') > 1:
        faults.append('The body has a line of three dashes, at which git ends a message.')
    return faults


def _subject_faults(subject: str) -> Iterator[str]:
    if not subject:
        yield 'There is no subject.'
        return
    first = re.split(r"[^\w'-]", subject)[0].lower()
    if re.match(r'\w+(\([^)]*\))?!?: ', subject) or subject.startswith('['):
        yield f'The subject {subject!r} has a prefix.'
    elif not subject[0].isupper():
        yield f'The subject {subject!r} does not start with a capital letter.'
    elif first not in _COMMANDS and re.search(r'(?:ed|ing|[^aisu]s)$', first):
        yield f'The subject {subject!r} does not start with a command such as `Add` or `Pass`.'
    if len(subject) > _WIDTH:
        yield f'The subject {subject!r} has {len(subject)} characters; {_WIDTH} are the most.'
    if subject.endswith('.'):
        yield f'The subject {subject!r} ends in a full stop.'
    if re.search(r'#\d+|^\d', subject):
        yield f'The subject {subject!r} has the number of an issue or a patch.'


def _body_faults(body: str) -> Iterator[str]:
    *paragraphs, last = re.split(r'\n{2,}', body)
    text = '\n\n'.join(paragraphs if _is_trailers(last) else [*paragraphs, last])
    if not text:
        yield 'There is no body.'
        return
    words = len(text.split())
    if words not in _WORDS:
        yield f'The body has {words} words; it should have between {_WORDS.start} and {_WORDS.stop - 1}.'
    fenced = False
    for line in text.splitlines():
        fenced ^= line.startswith('```')
        # Neither code nor a single long word, such as an address behind a list's dash, can be wrapped.
        unbreakable = fenced or line.startswith('    ') or ' ' not in re.sub(r'^\s*(?:[-*]|\d+\.)?\s*', '', line)
        if len(line) > _WIDTH and not unbreakable:
            yield f'The line {line!r} of the body has {len(line)} characters; {_WIDTH} are the most.'


def _trailer_faults(body: str) -> Iterator[str]:
    last = re.split(r'\n{2,}', body)[-1]
    if not _is_trailers(last):
        yield 'The last paragraph is not trailers only; there has to be an `Upstream-Status:`.'
        return
    trailers = [
        (match[1], line.split(':', 1)[1].strip()) for line in last.splitlines() if (match := _TRAILER.match(line))
    ]
    statuses = [value for key, value in trailers if key == 'Upstream-Status']
    if len(statuses) != 1:
        yield f'There has to be one trailer `Upstream-Status:`, and there are {len(statuses)}.'
    for status in statuses:
        if not _STATUS.fullmatch(status):
            yield (
                f'`Upstream-Status` must be `Pending`, `Submitted [https://…]` or `Inappropriate [why]`, but is {status!r}.'
            )
    if any(key.lower() == 'signed-off-by' for key, _ in trailers):
        yield 'There is a `Signed-off-by:`, which only the one who opens the pull request can give.'


def _is_trailers(paragraph: str) -> bool:
    return bool(paragraph) and all(_TRAILER.fullmatch(line) for line in paragraph.splitlines())
