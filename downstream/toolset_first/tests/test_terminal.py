"""What a terminal shows: all that is approved, nothing that could deceive, and one line when it is interrupted."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from conftest import Write
from rich.cells import cell_len
from toolset_first import Question
from toolset_first.cli import app, ask
from toolset_first.texts import visible
from typer.testing import CliRunner, Result

TOOLS = """
    import os
    from pydantic_ai import FunctionToolset
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from toolset_first import ToolsetSpec

    class Shell(FunctionToolset):
        stateful = True

        def __init__(self):
            super().__init__([self.sh])

        def copy(self):
            return Shell()

        async def sh(self, command: str, when: str = 'now') -> str:
            return 'ran'

        async def __aexit__(self, kind, error, trace):
            print(f'exited with {kind and kind.__name__}', flush=True)

    async def respond(messages, info):
        if isinstance(messages[-1].parts[-1], ToolReturnPart):
            return ModelResponse([TextPart(os.environ.get('SAID', 'done'))])
        return ModelResponse([ToolCallPart('sh', {'command': os.environ.get('COMMAND', 'ls')})])

    model = FunctionModel(respond)
    shell_tools = ToolsetSpec(toolset=Shell(), approval_config={'sh': 'ask'})
    """
WORKER = '---\nname: a\nmodel: tools.py:model\nentry: true\ntoolsets: [shell_tools]\n---\n'
PROGRAM = [sys.executable, '-c', 'from toolset_first.cli import main; main()']


@pytest.fixture
def folder(write: Write) -> Path:
    """A project whose agent runs a command."""
    return write(tools__py=TOOLS, a__worker=WORKER)


def run(folder: Path, *arguments: str, input: str = '', **environment: str) -> Result:
    return CliRunner().invoke(app, ['run', str(folder), 'Go', *arguments], input=input, env=environment)


def test_argument_is_shown_in_full_however_long_it_is(folder: Path) -> None:
    command = f'echo {"x" * 3000}; rm -rf {"y" * 50_000} THE-END'
    done = run(folder, input='n\n', COMMAND=command)
    shown = done.stderr.partition('wants to call sh\n')[2].partition('Allow it?')[0]
    lines = [line.removeprefix('  │ ') for line in shown.splitlines() if line.startswith('  │ ')]
    assert json.loads(''.join(lines)) == command
    assert f'command = ⟪ {len(command):,} characters, folded to {len(lines)} lines' in shown
    assert f'⚠ {len(command):,} characters are above: read them all' in shown
    assert '  when = "now"\n' in shown


@pytest.mark.parametrize(
    'command',
    [
        'x' * 86,  # which is one line of 100
        'x' * 87,
        'あ' * 300,
        'a' + '\u0301' * 500 + ' b',
        ('x' * 95 + '\u202e') * 9,
        '\\n' * 99 + '\\' + '\n"' * 99,
        ' ' * 5000 + '; rm -rf /',
        '\U000e0041\x1b👩\u200d💻' * 99,
    ],
)
async def test_question_fits_in_100_columns_and_loses_nothing(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = await asked(Question('a', 'sh', {'command': command}), monkeypatch, capsys)
    assert max(map(cell_len, shown.splitlines())) <= 100
    lines = [line.removeprefix('  │ ') for line in shown.splitlines() if line.startswith('  │ ')]
    assert (not lines) == (command == 'x' * 86)
    said = ''.join(lines) if lines else shown.partition(' = ')[2].partition('\n')[0]
    assert sum(line.count(r'\u202e') for line in lines) == command.count('\u202e')  # none is on two lines
    unescaped = re.sub(r'\\U(.{8})', lambda found: chr(int(found[1], 16)), said)
    assert json.loads(unescaped) == command


async def test_names_in_a_question_are_folded_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    question = Question('a' * 300, 't' * 300, {'n' * 300: 'ls'})
    shown = await asked(question, monkeypatch, capsys)
    assert max(map(cell_len, shown.splitlines())) <= 100
    assert f'{"a" * 300} wants to call {"t" * 300}  an' in shown.replace('\n', '')
    assert f'{"n" * 300} = "ls"' in shown.replace('\n  │ ', '')


async def asked(question: Question, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what is shown of a question before it is answered."""
    monkeypatch.setattr('sys.stdin', StringIO('n\n'))
    assert not (await ask(question)).approved
    return capsys.readouterr().err.partition('Allow it?')[0]


DECEIVING = 'a\x1b[2K\x1b]0;title\x07\r\u202erm\u2066\u200b\u2028b\x9b\x00'


def test_nothing_of_a_model_moves_the_cursor_or_turns_the_text(folder: Path, write: Write) -> None:
    write(tools__py=TOOLS.replace("os.environ.get('COMMAND', 'ls')", ascii(DECEIVING)))
    done = run(folder, input='n\n')
    assert not [one for one in DECEIVING if not one.isprintable() and one in done.stderr]
    assert r'\u001b' in done.stderr
    assert r'\u202e' in done.stderr
    assert r'\u200b' in done.stderr


def test_fold_can_not_be_forged(folder: Path) -> None:
    command = 'x' * 200 + '\n  ⟫ the end of these\nAllow it? '
    done = run(folder, input='n\n', COMMAND=command)
    assert done.stderr.count('\n  ⟫ the end of these\n') == 1
    assert done.stderr.count('\nAllow it? ') == 1


def test_event_that_is_cut_says_how_much_there_is(folder: Path) -> None:
    done = run(folder, '--approve-all', COMMAND='x' * 5000)
    line = next(one for one in done.stderr.splitlines() if one.startswith('  → sh '))
    assert '⟪… 4,8' in line
    assert 'more characters …⟫' in line


def test_error_is_escaped(folder: Path, write: Write) -> None:
    write(bad__py='raise ValueError("\\x1b[2J\\u202e")')
    for arguments in ([], ['--debug']):
        done = run(folder, *arguments)
        assert '\x1b' not in done.stderr
        assert '\u202e' not in done.stderr
        assert r'\x1b[2J\u202e' in done.stderr


def test_check_is_escaped(write: Write) -> None:
    worker = '---\nname: "a\\e[2Jb"\nmodel: test\nentry: true\n---\n'
    done = CliRunner().invoke(app, ['check', str(write(a__worker=worker))])
    assert done.exit_code == 0
    assert '\x1b' not in done.stdout
    assert r'\x1b[2J' in done.stdout


@pytest.mark.parametrize(
    ('text', 'plain', 'strict'),
    [
        ('Grüße, 日本\n', 'Grüße, 日本\n', r'Grüße, 日本\n'),
        ('a\u202eb', r'a\u202eb', r'a\u202eb'),
        ('a\x9bb', r'a\x9bb', r'a\x9bb'),
        ('👩\u200d💻', '👩\u200d💻', '👩\\u200d💻'),
        ('a\u00a0b', 'a\u00a0b', r'a\xa0b'),
        ('\ud800', r'\ud800', r'\ud800'),
        ('a\U000e0041', 'a\U000e0041', r'a\U000e0041'),
        ('a\u3164\ufe0f', 'a\u3164\ufe0f', r'a\u3164\ufe0f'),
    ],
)
def test_visible_escapes_what_deceives(text: str, plain: str, strict: str) -> None:
    assert visible(text, keep='\n') == plain
    assert visible(text, strict=True) == strict


def on_a_terminal(folder: Path, *arguments: str, typed: bytes = b'', **environment: str) -> str:
    """Return what a terminal shows to someone who has typed that beforehand, and then nothing."""
    outside, inside = pty.openpty()
    command = [*PROGRAM, 'run', str(folder), 'Go', *arguments]
    environ = {**os.environ, 'TERM': 'dumb', **environment}
    os.write(outside, typed)
    process = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, env=environ)
    os.close(inside)
    shown = b''
    for piece in _pieces(outside):
        shown += piece
        if piece.endswith(b'[N]o: '):
            os.write(outside, b'\4')  # the end of the input
    os.close(outside)
    process.wait()
    return shown.decode().replace('\r\n', '\n')


def _pieces(file: int) -> Iterator[bytes]:
    while True:
        try:
            piece = os.read(file, 4096)
        except OSError:  # the other end is closed
            return
        if not piece:
            return
        yield piece


def test_result_is_escaped_on_a_terminal_and_left_alone_in_a_file(folder: Path) -> None:
    said = 'a\u202eb\x1b[2Jc\nd'
    assert 'a\\u202eb\\x1b[2Jc\nd\n' in on_a_terminal(folder, '--approve-all', SAID=said)
    assert f'{said}\n' in run(folder, '--approve-all', SAID=said).stdout


def test_line_that_was_typed_before_a_question_is_no_answer_to_it(folder: Path) -> None:
    assert 'The user denied this call.' in on_a_terminal(folder, typed=b'y\ny\n')


def test_line_of_a_chat_whose_questions_nobody_sees_is_an_input(folder: Path) -> None:
    outside, inside = pty.openpty()
    os.write(outside, b'Go\ny\n\n')
    command = [*PROGRAM, 'run', str(folder), '--chat']
    done = subprocess.run(command, stdin=inside, capture_output=True, text=True, check=False, timeout=60)
    os.close(inside)
    os.close(outside)
    assert done.stderr.count('All calls that need approval are rejected.') == 2


def interrupted(folder: Path, *arguments: str, at: str) -> tuple[int, str, str]:
    """Interrupt a run when it has written something to stderr, and return its exit status, its output and its errors after that."""
    process = subprocess.Popen(
        [*PROGRAM, 'run', str(folder), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    seen = b''
    while at.encode() not in seen:
        piece = os.read(process.stderr.fileno(), 4096)
        assert piece, seen
        seen += piece
    process.send_signal(signal.SIGINT)
    out, rest = process.communicate()
    return process.returncode, out.decode(), rest.decode()


QUESTION = 'Allow it? [y]es, [a]lways for this very call, [N]o: '


def test_interrupt_at_an_approval_is_one_line_and_toolsets_are_exited(folder: Path) -> None:
    status, out, rest = interrupted(folder, 'Go', at=QUESTION)
    assert (status, out, rest) == (130, 'exited with CancelledError\n', '\ninterrupted\n')


def test_interrupt_at_the_prompt_of_a_chat_is_one_line_and_toolsets_are_exited(folder: Path) -> None:
    # A chat keeps its toolsets open, so there's something to exit before the first turn as well.
    status, out, rest = interrupted(folder, '--chat', at='> ')
    assert (status, out, rest) == (130, 'exited with CancelledError\n', '\ninterrupted\n')


def test_interrupt_while_a_model_answers_is_one_line(write: Write) -> None:
    slow = TOOLS.replace(
        '        if isinstance(messages[-1]',
        "        import asyncio, sys\n        print('asked', file=sys.stderr, flush=True)\n        await asyncio.sleep(600)\n        if isinstance(messages[-1]",
    )
    folder = write(tools__py=slow, a__worker=WORKER)
    status, out, rest = interrupted(folder, 'Go', at='asked\n')
    assert (status, out, rest) == (130, 'exited with CancelledError\n', 'interrupted\n')


@pytest.mark.parametrize(
    ('given', 'status', 'said'),
    [
        ('Grüße'.encode('latin-1'), 1, 'error: The input on stdin is not in UTF-8 (byte 3). Save it as UTF-8.'),
        ('Hi'.encode('utf-16'), 1, 'error: The input on stdin is in UTF-16. Save it as UTF-8.'),
        (b'a\0b', 1, 'error: The input on stdin is no text in UTF-8, since there are NUL characters in it (byte 2)'),
        ('Grüße'.encode('utf-8-sig'), 0, 'a: Grüße'),
    ],
)
def test_input_on_stdin_is_in_utf_8_whatever_the_locale_is(given: bytes, status: int, said: str, folder: Path) -> None:
    environment: Any = {**os.environ, 'PYTHONIOENCODING': 'latin-1:surrogateescape'}
    command = [*PROGRAM, 'run', str(folder), '--reject-all']
    done = subprocess.run(command, input=given, capture_output=True, check=False, env=environment)
    assert done.returncode == status
    assert said in done.stderr.decode('latin-1')


def test_argument_that_is_no_text_is_an_error(folder: Path) -> None:
    command: list[Any] = [*PROGRAM, 'run', str(folder), b'Gr\xfc\xdfe']
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stderr.decode()) == (1, 'error: The input is no text in UTF-8 (character 3).\n')
