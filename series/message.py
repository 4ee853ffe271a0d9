"""Read and check the message of a patch: its subject, its body and its trailers."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from series.git import Git

_WIDTH = 72
_WORDS = range(30, 601)
_TRAILER = re.compile(r'([A-Z][A-Za-z-]*): +(\S.*?) *')
_FORWARDED = re.compile(r'no|https://\S+|not-needed \(.+\)')
_ADDRESS = re.compile(r'https://\S+')
# Words of a command that end like those of a report.
_COMMANDS = {'bring', 'embed', 'feed', 'focus', 'need', 'seed', 'shed', 'speed', 'string', 'alias', 'bias', 'canvas'}


@dataclass(frozen=True)
class Message:
    """What a patch says of itself."""

    subject: str
    text: str
    """The body without its trailers."""
    trailers: tuple[tuple[str, str], ...]
    """The names and values of the last paragraph, if there is nothing else in it."""

    def values(self, name: str) -> list[str]:
        """Return the values of the trailers of a name."""
        return [value for key, value in self.trailers if key == name]


def read_message(patch: Path) -> Message:
    """Read the message of a patch as `git am` will."""
    with tempfile.TemporaryDirectory() as scratch, patch.open('rb') as mail:
        # With `[…]` in the subject kept.
        read = Git(Path(scratch)).run(
            'mailinfo', '-b', '--encoding=UTF-8', '--no-scissors', 'message', 'diff', stdin=mail
        )
        body = (Path(scratch) / 'message').read_text('utf-8').strip()
    headers = dict(line.split(': ', 1) for line in read.splitlines() if ': ' in line)
    *paragraphs, last = re.split(r'\n{2,}', body)
    trailers = [match for line in last.splitlines() if (match := _TRAILER.fullmatch(line))]
    if not last or len(trailers) < len(last.splitlines()):
        paragraphs, trailers = [*paragraphs, last], []
    named = tuple((match[1], match[2]) for match in trailers)
    return Message(headers.get('Subject', '').strip(), '\n\n'.join(paragraphs), named)


def message_faults(patch: Path, message: Message, earlier: Collection[str]) -> list[str]:
    """Say everything that is wrong with the message of a patch.

    Args:
        patch: The patch file.
        message: What was read of it.
        earlier: The subjects of the patches before it.
    """
    faults = [
        *_subject_faults(message.subject),
        *_text_faults(message.text),
        *_trailer_faults(message),
        *_need_faults(message, earlier),
    ]
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


def _text_faults(text: str) -> Iterator[str]:
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
        if line.startswith('#'):
            yield f'The line {line!r} of the body is a comment for git, which drops it when a fixup is folded in.'


def _trailer_faults(message: Message) -> Iterator[str]:
    if not message.trailers:
        yield 'The last paragraph is not trailers only; there has to be a `Forwarded:`.'
        return
    forwarded = message.values('Forwarded')
    if len(forwarded) != 1:
        yield f'There has to be one trailer `Forwarded:`, and there are {len(forwarded)}.'
    for value in forwarded:
        if not _FORWARDED.fullmatch(value):
            yield f'`Forwarded` must be `no`, `https://…` or `not-needed (why)`, but is {value!r}.'
    for name in ('Bug', 'Closes'):
        for value in message.values(name):
            if not _ADDRESS.fullmatch(value):
                yield f'`{name}` must be an address, but is {value!r}.'
    if any(key.lower() == 'signed-off-by' for key, _ in message.trailers):
        yield 'There is a `Signed-off-by:`, which only the one who opens the pull request can give.'


def _need_faults(message: Message, earlier: Collection[str]) -> Iterator[str]:
    needs = message.values('Needs')
    for need in dict.fromkeys(needs):
        if need not in earlier:
            yield f'`Needs` must be the subject of an earlier patch, but is {need!r}.'
        if needs.count(need) > 1:
            yield f'`Needs` names {need!r} {needs.count(need)} times.'


def patch_subject(subject: str) -> str:
    """Return the subject of the patch that a fixup is for."""
    return re.sub(r'^((fixup|squash|amend)! )+', '', subject)


def direct_needs(messages: Mapping[Path, Message]) -> dict[Path, list[Path]]:
    """Return which earlier patches each patch names; what is no subject of an earlier one is `verify`'s to tell.

    Args:
        messages: The messages of the patches, in the order of the series.
    """
    needs: dict[Path, list[Path]] = {}
    subjects: dict[str, Path] = {}
    for patch, message in messages.items():
        needs[patch] = [subjects[subject] for subject in message.values('Needs') if subject in subjects]
        subjects[message.subject] = patch
    return needs


def all_needs(patches: Collection[Path], needs: Mapping[Path, Collection[Path]]) -> list[Path]:
    """Return patches with all that they need, and what that needs, in the order of the series."""
    found: set[Path] = set()
    waiting = [*patches]
    while waiting:
        patch = waiting.pop()
        if patch not in found:
            found.add(patch)
            waiting += needs[patch]
    return [patch for patch in needs if patch in found]
