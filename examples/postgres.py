"""Start a PostgreSQL of our own: on a free port of this machine, with its data in a temporary folder, and gone afterwards.

It needs nothing but the standard library, since it also runs where only the fork and what tests it are installed.
There are packages that bring PostgreSQL along or start one. Those that are well kept refuse to run as root, as CI does, or
add a user to the system for it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_UNTIL_CLOSED = 'exec 3<&0; (read -r _ <&3; kill -INT $$) & exec "$@" 3<&-'
"""A shell's words for running a program until the one who started it closes its input, or is killed."""


class NoPostgresError(Exception):
    """PostgreSQL isn't installed, or doesn't start."""


def find_postgres() -> Path:
    """Find the folder with `initdb` and `postgres`.

    Debian keeps them off the `PATH`, in a folder for each version, of which the newest is taken.

    Raises:
        NoPostgresError: It isn't there.
    """
    installed = sorted(Path('/usr/lib/postgresql').glob('*/bin'), key=lambda folder: _version(folder.parent.name))
    on_path = shutil.which('initdb')
    folders = [*reversed(installed), *([Path(on_path).resolve().parent] if on_path else [])]
    for folder in folders:
        if all((folder / name).exists() for name in ('initdb', 'postgres')):
            return folder
    raise NoPostgresError(
        'PostgreSQL is not installed: neither `/usr/lib/postgresql` nor the `PATH` has `initdb`. '
        'Install it, on Debian with `apt-get install postgresql`, and run the same command again.'
    )


def _version(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split('.') if part.isdigit())


@contextmanager
def postgres_server() -> Generator[str]:
    """Run a server, and give its URL, to which the name of a database is added.

    Raises:
        NoPostgresError: It isn't installed, or doesn't start.
    """
    programs = find_postgres()
    # Not in pytest's folder, which only its owner may enter.
    with tempfile.TemporaryDirectory(prefix='postgres-') as name:
        folder = Path(name)
        options = _unprivileged(folder)
        data = folder / 'data'
        initdb = [programs / 'initdb', '--username=postgres', '--auth=trust', '--encoding=UTF8', '--locale=C']
        done = subprocess.run(
            [*initdb, '--no-sync', '--pgdata', data],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **options,
        )
        if done.returncode:
            raise NoPostgresError(f'`initdb` failed with exit status {done.returncode}:\n{done.stdout}')
        port = _free_port()
        url = f'postgresql://postgres@127.0.0.1:{port}'
        # No Unix socket, whose folder may not be ours to write to; and no syncing, since nothing outlives the tests.
        settings = ('listen_addresses=127.0.0.1', f'port={port}', 'unix_socket_directories=', 'fsync=off')
        command = [programs / 'postgres', '-D', data, *(part for setting in settings for part in ('-c', setting))]
        log = folder / 'log'
        with log.open('wb') as output:
            server = subprocess.Popen(
                ['sh', '-c', _UNTIL_CLOSED, 'sh', *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for who uses it, and ends it then.
                start_new_session=True,
                **options,
            )
        try:
            _wait_until_ready(server, data / 'postmaster.pid', log)
            yield url
        finally:
            # A "fast shutdown", which doesn't wait for clients to leave.
            server.send_signal(signal.SIGINT)
            try:
                server.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.communicate()


def _unprivileged(folder: Path) -> dict[str, Any]:
    """Return the options of `subprocess` with which a program runs as someone who isn't root, and give them the folder."""
    options: dict[str, Any] = {'cwd': folder, 'env': {'PATH': os.defpath, 'LC_ALL': 'C'}}
    if os.geteuid():
        return options
    for name in ('postgres', 'nobody'):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        os.chown(folder, user.pw_uid, user.pw_gid)
        return options | {'user': user.pw_uid, 'group': user.pw_gid, 'extra_groups': []}
    raise NoPostgresError(
        'PostgreSQL refuses to run as root, and this machine has neither a user `postgres` nor `nobody`. '
        'Run the tests as another user.'
    )


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        return listener.getsockname()[1]


def _wait_until_ready(server: subprocess.Popen[Any], state: Path, log: Path) -> None:
    deadline = time.monotonic() + 60
    # Its last line says how far the server is.
    while not (state.exists() and state.read_text().rstrip().endswith('ready')):
        if server.poll() is not None or time.monotonic() > deadline:
            raise NoPostgresError(f'PostgreSQL does not start:\n{log.read_text(errors="replace")}')
        time.sleep(0.1)
