"""Point 9: a chat in a terminal, on a model that needs no key."""

from __future__ import annotations

import io
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from hookable_toolset import Session, SessionStore
from hookable_toolset.cli import main

Chat = Callable[..., str]


@pytest.fixture
def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Chat:
    """Chats in a folder of its own with what is typed, and returns what is shown."""
    (tmp_path / 'work').mkdir()
    (tmp_path / 'work' / 'notes.txt').write_text('hello')

    def chat(*lines: str, code: int = 0, more: tuple[str, ...] = ()) -> str:
        monkeypatch.setattr(sys, 'stdin', io.StringIO(''.join(f'{line}\n' for line in lines)))
        arguments = ['--session', 'ada', '--db', f'{tmp_path / "s.db"}', '--folder', f'{tmp_path / "work"}', *more]
        assert main(['chat', *arguments]) == code
        return capsys.readouterr().out

    return chat


def test_tools_are_called_and_shown(chat: Chat) -> None:
    shown = chat('read_file notes.txt', 'list_files', 'hello?')
    assert "-> read_file {'path': 'notes.txt'}\n<- read_file hello\nread_file: hello\n" in shown
    assert "list_files: ['notes.txt']" in shown
    assert 'I am a script. Begin with the name of a tool' in shown


def test_errors_of_tools_are_told_and_the_chat_goes_on(chat: Chat) -> None:
    shown = chat('read_file missing.txt', 'read_file ../s.db', 'read_file notes.txt')
    assert 'read_file: FileNotFoundError: ' in shown
    assert "read_file: '../s.db' is outside of the folder. Give a path below it." in shown
    assert 'read_file: hello' in shown


def test_links_out_of_the_folder_are_refused(chat: Chat, tmp_path: Path) -> None:
    (tmp_path / 'secret.txt').write_text('secret')
    (tmp_path / 'work' / 'link').symlink_to(tmp_path)
    shown = chat('read_file link/secret.txt', f'write_file {tmp_path}/x.txt y', 'y')
    assert shown.count('is outside of the folder') >= 2
    assert 'read_file: secret' not in shown and not (tmp_path / 'x.txt').exists()


def test_approval_is_asked_with_metadata_and_yes_runs(chat: Chat, tmp_path: Path) -> None:
    shown = chat('write_file a.txt some text', 'what?', 'y')
    assert 'write_file {"path":"a.txt","content":"some text"} needs your approval.' in shown
    assert f'  warning: This writes a file.\n  folder: {tmp_path / "work"}\n' in shown
    assert 'Answer with y, n, always or edit.' in shown
    assert (tmp_path / 'work' / 'a.txt').read_text() == 'some text'


def test_no_is_told_to_the_model_with_the_reason(chat: Chat, tmp_path: Path) -> None:
    assert 'write_file: too late' in chat('write_file a.txt x', 'n too late')
    assert 'write_file: The tool call was denied.' in chat('write_file a.txt x', 'n')
    assert not (tmp_path / 'work' / 'a.txt').exists()


def test_always_is_for_the_session_and_this_tool(chat: Chat) -> None:
    shown = chat('shell echo one', 'always', 'shell echo two', 'write_file a.txt x', 'y')
    assert shown.count('needs your approval') == 2 and 'two\n[exit code 0]' in shown
    assert 'needs your approval' not in chat('shell echo three')


def test_edited_arguments_are_those_that_run(chat: Chat, tmp_path: Path) -> None:
    edited = json.dumps({'path': 'b.txt', 'content': 'edited'})
    shown = chat('write_file a.txt x', 'edit', 'no json', 'edit', '[1]', 'edit', edited)
    assert 'Write the arguments as a JSON object. Invalid JSON: ' in shown
    assert 'Write the arguments as a JSON object. Input should be an object.' in shown
    assert "-> write_file {'path': 'b.txt', 'content': 'edited'}" in shown
    assert not (tmp_path / 'work' / 'a.txt').exists()
    assert (tmp_path / 'work' / 'b.txt').read_text() == 'edited'


def test_question_without_an_answer_waits_for_the_next_chat(chat: Chat, tmp_path: Path) -> None:
    assert chat('write_file a.txt x').endswith('Waiting for an approval: write_file. /resume goes on.\n> ')
    shown = chat('/resume', 'y', '/resume')
    assert shown.index('Waiting for an approval: write_file') < shown.index('needs your approval')
    assert 'Nothing waits for an approval.' in shown
    assert (tmp_path / 'work' / 'a.txt').read_text() == 'x'


def test_tools_lists_them_and_approve_changes_which_need_one(chat: Chat, tmp_path: Path) -> None:
    shown = chat('/tools', '/approve', '/approve read_file shell', '/approve nope', 'read_file notes.txt', 'y', '/help')
    assert 'write_file      Write a text file, in place of one that is there. needs an approval' in shown
    assert 'An approval is needed for: write_file, shell.' in shown
    assert 'An approval is needed for: write_file, read_file.' in shown
    assert "has no tool 'nope'" in shown and 'read_file {"path":"notes.txt"} needs your approval.' in shown
    assert '/resume          goes on' in shown
    with SessionStore(tmp_path / 's.db') as store:
        assert Session.open(store, 'ada').context.need_user_approve_tools == ['write_file', 'read_file']


def test_session_goes_on_where_it_was(chat: Chat) -> None:
    assert "Session 'ada', 0 responses so far." in chat('read_file notes.txt', '/quit', 'read_file notes.txt')
    assert "Session 'ada', 2 responses so far." in chat()


def test_shell_ends_what_takes_too_long_and_all_that_it_started(
    chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hookable_toolset.builtin import ShellTool

    monkeypatch.setattr(ShellTool, 'timeout', 0.3)
    shown = chat('shell sleep 60 & echo $! > pid; wait', 'y')
    assert "shell: TimeoutError: Tool 'shell' took longer than 0.3 seconds." in shown
    process = int((tmp_path / 'work' / 'pid').read_text())
    for _ in range(100):
        if not alive(process):
            break
        time.sleep(0.02)
    else:
        pytest.fail('the command goes on')


def test_shell_returns_only_after_what_took_too_long_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hookable_toolset.builtin import ShellTool

    kill, killed = os.killpg, list[int]()

    def kill_slowly(group: int, with_: int) -> None:
        killed.append(group)
        threading.Timer(0.3, kill, [group, with_]).start()  # as where the machine is busy

    async def run() -> None:
        with anyio.move_on_after(0.2):
            await ShellTool(tmp_path).call(cast('Any', None), 'sleep 60')
        assert killed and not alive(killed[0])

    monkeypatch.setattr(os, 'killpg', kill_slowly)
    anyio.run(run)


def alive(process: int) -> bool:
    """Whether a process runs: one that has ended and that nobody has waited for doesn't."""
    try:
        return Path(f'/proc/{process}/stat').read_text().rpartition(')')[2].split()[0] != 'Z'
    except OSError:
        return False


def test_tools_of_a_module_take_the_place_of_the_built_in_ones(
    chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / 'my_tools.py').write_text(
        'from hookable_toolset import BaseTool\n'
        'class Greet(BaseTool):\n'
        "    name = 'greet'\n"
        '    def call(self, ctx, who: str) -> str:\n'
        "        return f'Hello {who}'\n"
    )
    (tmp_path / 'no_tools.py').write_text('from hookable_toolset import BaseTool\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # type: ignore
    assert 'greet: Hello Ada Lovelace' in chat('greet Ada Lovelace', more=('--tools', 'my_tools'))
    assert 'error: `no_tools` has no tools.' in chat(code=1, more=('--tools', 'no_tools'))
    assert "error: No module named 'nonsense'" in chat(code=1, more=('--tools', 'nonsense'))
    assert 'error: There is no folder' in chat(code=1, more=('--folder', 'nonsense'))


def test_session_that_another_process_has_written_is_opened_again(chat: Chat, tmp_path: Path) -> None:
    class Typing(io.StringIO):
        """Has someone else write the session after the first line."""

        lines = 0

        def readline(self, size: int | None = -1, /) -> str:
            self.lines += 1
            if self.lines == 2:
                with SessionStore(tmp_path / 's.db') as store:
                    session = Session.open(store, 'ada')
                    session.context.need_user_approve_tools.append('read_file')
                    session.save()
            return super().readline()

    with pytest.MonkeyPatch.context() as patch:
        chat('read_file notes.txt')
        patch.setattr('io.StringIO', Typing)
        shown = chat('/approve', 'list_files', '/approve')
    assert 'was written by someone else: it is at revision 2, and revision 1 was read.' in shown
    assert shown.rstrip('\n> ').endswith('An approval is needed for: write_file, shell, read_file.')


def test_killed_chat_asks_again(tmp_path: Path) -> None:
    """The command as it is installed, killed while it waits for an approval."""
    command = [sys.executable, '-m', 'hookable_toolset.cli', 'chat', '--session', 'ada', '--db', f'{tmp_path / "s.db"}']
    options = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'text': True, 'cwd': tmp_path}
    with subprocess.Popen(command, **options) as process:  # type: ignore[call-overload]
        process.stdin.write('write_file a.txt x\n')  # type: ignore
        process.stdin.flush()  # type: ignore
        shown = ''
        while 'edit?' not in shown:
            shown += process.stdout.read(1) or pytest.fail(f'It has ended: {shown}')  # type: ignore
        process.send_signal(signal.SIGKILL)
    done = subprocess.run(command, input='/resume\ny\n', capture_output=True, text=True, cwd=tmp_path, check=True)
    assert 'write_file: Wrote 1 characters to a.txt.' in done.stdout
    assert (tmp_path / 'a.txt').read_text() == 'x'


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='a terminal is made')
def test_arguments_are_edited_in_place_in_a_terminal(tmp_path: Path) -> None:
    import pty

    terminal, inside = pty.openpty()
    command = [sys.executable, '-m', 'hookable_toolset.cli', 'chat', '--session', 'ada', '--db', 's.db']
    environment = os.environ | {'TERM': 'xterm', 'COLUMNS': '100', 'LINES': '30', 'PROMPT_TOOLKIT_NO_CPR': '1'}
    with subprocess.Popen(
        command, stdin=inside, stdout=inside, stderr=inside, cwd=tmp_path, env=environment
    ) as process:
        os.close(inside)

        def expect(text: str) -> str:
            shown = b''
            while text.encode() not in shown:
                assert select.select([terminal], [], [], 30)[0], f'no {text!r} in {shown!r}'
                shown += os.read(terminal, 65536)
            return shown.decode()

        try:
            expect('?2004h')  # it reads
            os.write(terminal, b'shell echo hi\r')
            expect('edit?')
            os.write(terminal, b'edit\r')
            expect('"}')  # the arguments as they are
            os.write(terminal, b'\x7f' * 4 + b'ho"}\r')
            expect('shell: ho\r\n[exit code 0]\r\n\x1b[?2004h')
            os.write(terminal, b'\x04')  # the end of the input
            assert process.wait(30) == 0
        finally:
            process.kill()
    os.close(terminal)
