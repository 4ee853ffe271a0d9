"""A PostgreSQL of our own: on a free port of this machine, with its data in a temporary folder, and gone afterwards.

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

import psycopg


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
        'Install it, on Debian with `apt-get install postgresql`, and run the tests again.'
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
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, **options
            )
        try:
            _wait_until_ready(server, url, log)
            yield url
        finally:
            # A "fast shutdown", which doesn't wait for clients to leave.
            server.send_signal(signal.SIGINT)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


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


def _wait_until_ready(server: subprocess.Popen[Any], url: str, log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(f'{url}/postgres', connect_timeout=5).close()
            return
        except psycopg.OperationalError as error:
            if server.poll() is not None or time.monotonic() > deadline:
                words = log.read_text(errors='replace')
                raise NoPostgresError(f'PostgreSQL does not start: {error}\n{words}') from error
            time.sleep(0.1)
