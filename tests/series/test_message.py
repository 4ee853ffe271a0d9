"""What `verify` says of the message of a patch."""

from __future__ import annotations

from pathlib import Path

import pytest

from series.message import message_faults, read_message

BODY = """\
A toolset's exit is never told that the run failed, so one that commits
there commits the half-done work of a failed run:

    async def __aexit__(self, exc_type: type[BaseException] | None, *args: Any) -> None: ...

Pass the exception on. A subclass can't do this, as the information is
lost before the toolset is reached, see
https://github.com/pydantic/pydantic-ai/issues/1234567890/a-very-long-address-indeed

- This goes away when upstream passes the exception on."""
STATUS = 'Forwarded: no'


def faults(patch: Path, *earlier: str) -> list[str]:
    return message_faults(patch, read_message(patch), earlier)


def write(folder: Path, subject: str, body: str) -> Path:
    """Write a patch with this message, as `git format-patch --keep-subject` does."""
    patch = folder / '0001.patch'
    header = f'From: A. Author <author@example.com>\nDate: Sat, 1 Feb 2025 12:00:00 +0100\nSubject: {subject}\n'
    patch.write_text(
        f'From {"0" * 40} Mon Sep 17 00:00:00 2001\n{header}'
        'MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: 8bit\n\n'
        f'{body}\n---\n one.txt | 1 +\n\ndiff --git a/one.txt b/one.txt\nnew file mode 100644\n--- /dev/null\n'
        '+++ b/one.txt\n@@ -0,0 +1 @@\n+1\n',
        'utf-8',
    )
    return patch


@pytest.mark.parametrize(
    'subject',
    [
        'Pass the exception to `__aexit__`',
        'Embed the Größe',
        'Process 10 runs at once',
        'Need no copy for a [stateless] toolset',
        'x'.upper() * 72,
        # Folded, as git does with a long one.
        'Keep a subject of plain letters that is so long as to be folded in\n mail',
    ],
)
def test_message_faults_of_a_good_subject_are_none(tmp_path: Path, subject: str) -> None:
    assert faults(write(tmp_path, subject, f'{BODY}\n\n{STATUS}')) == []


@pytest.mark.parametrize(
    'trailers',
    [
        STATUS,
        'Closes: https://github.com/pydantic/pydantic-ai/issues/1\nForwarded: https://example.com/1',
        'Forwarded: not-needed (upstream solves it in another way)',
    ],
)
def test_message_faults_of_good_trailers_are_none(tmp_path: Path, trailers: str) -> None:
    assert faults(write(tmp_path, 'Pass it on', f'{BODY}\n\n{trailers}')) == []


@pytest.mark.parametrize(
    'subject, fault',
    [
        ('', 'There is no subject.'),
        ('fix: Pass it on', "The subject 'fix: Pass it on' has a prefix."),
        ('Toolsets(core)!: Pass it on', "The subject 'Toolsets(core)!: Pass it on' has a prefix."),
        ('[1/5] Pass it on', "The subject '[1/5] Pass it on' has a prefix."),
        ('pass it on', "The subject 'pass it on' does not start with a capital letter."),
        ('`copy()` is new', "The subject '`copy()` is new' does not start with a capital letter."),
        ('Passed it on', "The subject 'Passed it on' does not start with a command such as `Add` or `Pass`."),
        ('Passing it on', "The subject 'Passing it on' does not start with a command such as `Add` or `Pass`."),
        ('Adds it', "The subject 'Adds it' does not start with a command such as `Add` or `Pass`."),
        ('Pass it on.', "The subject 'Pass it on.' ends in a full stop."),
        ('Pass it on (#12)', "The subject 'Pass it on (#12)' has the number of an issue or a patch."),
        ('P' * 73, f"The subject '{'P' * 73}' has 73 characters; 72 are the most."),
    ],
)
def test_message_faults_of_a_bad_subject_name_it(tmp_path: Path, subject: str, fault: str) -> None:
    assert faults(write(tmp_path, subject, f'{BODY}\n\n{STATUS}')) == [fault]


@pytest.mark.parametrize(
    'message, found',
    [
        (STATUS, ['There is no body.']),
        (f'It is new.\n\n{STATUS}', ['The body has 3 words; it should have between 30 and 600.']),
        (f'{BODY}\n\n{"word " * 10}{"x" * 30}\n\n{STATUS}', [f"The line '{'word ' * 10}{'x' * 30}' of the body has 80 characters; 72 are the most."]),
        (f'{BODY}\n\n```\n{"code " * 20}\n```\n\n{STATUS}', []),
        (
            f'{BODY}\n\n#4347 asked for it.\n\n{STATUS}',
            ["The line '#4347 asked for it.' of the body is a comment for git, which drops it when a fixup is folded in."],
        ),
        (f'{BODY}\n\nThis\n---\nand that.\n\n{STATUS}', [
            'The last paragraph is not trailers only; there has to be a `Forwarded:`.',
            'The body has a line of three dashes, at which git ends a message.',
        ]),
        (BODY, ['The last paragraph is not trailers only; there has to be a `Forwarded:`.']),
        (f'{BODY}\n\nBy the way.\n{STATUS}', ['The last paragraph is not trailers only; there has to be a `Forwarded:`.']),
        (f'{BODY}\n\nCloses: https://example.com/1', ['There has to be one trailer `Forwarded:`, and there are 0.']),
        (f'{BODY}\n\n{STATUS}\n{STATUS}', ['There has to be one trailer `Forwarded:`, and there are 2.']),
        (
            f'{BODY}\n\nForwarded: Pending',
            ["`Forwarded` must be `no`, `https://…` or `not-needed (why)`, but is 'Pending'."],
        ),
        (
            f'{BODY}\n\n{STATUS}\nSigned-off-by: A. Author <author@example.com>',
            ['There is a `Signed-off-by:`, which only the one who opens the pull request can give.'],
        ),
    ],
)  # fmt: skip
def test_message_faults_of_a_bad_body_name_them(tmp_path: Path, message: str, found: list[str]) -> None:
    assert faults(write(tmp_path, 'Pass it on', message)) == found


NEEDS = f'{BODY}\n\nNeeds: Pass it on\nNeeds: Add `copy()`\n{STATUS}'


def test_message_faults_of_needs_that_are_earlier_patches_are_none(tmp_path: Path) -> None:
    assert faults(write(tmp_path, 'Use both', NEEDS), 'Add `copy()`', 'Add a third', 'Pass it on') == []


def test_message_faults_of_a_need_that_is_no_earlier_patch_name_it(tmp_path: Path) -> None:
    assert faults(write(tmp_path, 'Use both', NEEDS), 'Add `copy()`') == [
        "`Needs` must be the subject of an earlier patch, but is 'Pass it on'."
    ]


def test_message_faults_of_a_need_that_is_named_twice_name_it(tmp_path: Path) -> None:
    patch = write(tmp_path, 'Use it', f'{BODY}\n\nNeeds: Pass it on\nNeeds: Pass it on\n{STATUS}')

    assert faults(patch, 'Pass it on') == ["`Needs` names 'Pass it on' 2 times."]


def test_read_message_returns_what_git_am_would_commit(tmp_path: Path) -> None:
    message = read_message(write(tmp_path, 'Use [both]', NEEDS))

    assert (message.subject, message.text) == ('Use [both]', BODY)
    assert message.trailers == (('Needs', 'Pass it on'), ('Needs', 'Add `copy()`'), ('Forwarded', 'no'))
    assert message.values('Needs') == ['Pass it on', 'Add `copy()`']


def test_read_message_without_trailers_takes_all_for_the_text(tmp_path: Path) -> None:
    message = read_message(write(tmp_path, 'Use it', f'{BODY}\n\nBy the way.\n{STATUS}'))

    assert (message.text, message.trailers) == (f'{BODY}\n\nBy the way.\n{STATUS}', ())
