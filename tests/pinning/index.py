"""A package index of the built wheels, as a company runs one beside the public index."""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

JSON = 'application/vnd.pypi.simple.v1+json'
HTML = 'application/vnd.pypi.simple.v1+html'


@contextmanager
def serve(wheels: Iterable[Path]) -> Generator[Index]:
    """Serve wheels of one project on a free port of this machine, until the context ends."""
    index = Index(wheels)
    thread = Thread(target=index.serve_forever, kwargs={'poll_interval': 0.05}, daemon=True)
    thread.start()
    try:
        yield index
    finally:
        index.shutdown()
        thread.join()
        index.server_close()


class Index(ThreadingHTTPServer):
    """A simple index: JSON (PEP 691) for clients that ask for it, HTML (PEP 503) for others; `plain` is HTML for all."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, wheels: Iterable[Path]) -> None:
        super().__init__(('127.0.0.1', 0), _Handler)
        self.wheels = {wheel.name: wheel.read_bytes() for wheel in wheels}
        # Installers remember what they got from an address; other wheels, of the same names, get another one.
        digests = json.dumps(self.files(), sort_keys=True)
        self.prefix = f'/{hashlib.sha256(digests.encode()).hexdigest()[:12]}'
        self.asked: list[tuple[str, str]] = []
        """The paths below the prefix that were asked for, with the kind of the answer."""

    @property
    def url(self) -> str:
        """The index, as users configure it."""
        return f'http://127.0.0.1:{self.server_port}{self.prefix}/simple/'

    @property
    def plain(self) -> str:
        """The same as static files, for all clients in HTML."""
        return f'http://127.0.0.1:{self.server_port}{self.prefix}/plain/'

    def files(self) -> dict[str, str]:
        """Return the digests of the wheels by their names."""
        return {name: hashlib.sha256(content).hexdigest() for name, content in self.wheels.items()}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'  # keeps connections

    @property
    def index(self) -> Index:
        assert isinstance(self.server, Index)
        return self.server

    def do_GET(self) -> None:
        path = self.path.split('?')[0].removeprefix(self.index.prefix)
        parts = path.strip('/').split('/')
        wheel = self.index.wheels.get(parts[-1].replace('%2B', '+').replace('%2b', '+'))
        if parts[0] == 'files' and wheel is not None:
            self._answer(200, 'application/octet-stream', wheel)
        elif path in ('/simple/pydantic-ai-slim/', '/plain/pydantic-ai-slim/'):
            kind = 'text/html'
            if parts[0] == 'simple':
                kind = JSON if JSON in self.headers.get('Accept', '') else HTML
            self._answer(200, kind, (self._json if kind == JSON else self._html)().encode())
        else:
            self._answer(404, 'text/plain', b'not here\n')

    do_HEAD = do_GET

    def _json(self) -> str:
        files = [
            {
                'filename': name,
                'url': f'{self.index.prefix}/files/{name.replace("+", "%2B")}',
                'hashes': {'sha256': digest},
            }
            for name, digest in self.index.files().items()
        ]
        return json.dumps({'meta': {'api-version': '1.0'}, 'name': 'pydantic-ai-slim', 'files': files})

    def _html(self) -> str:
        links = (
            f'<a href="{self.index.prefix}/files/{name.replace("+", "%2B")}#sha256={digest}">{html.escape(name)}</a><br>\n'
            for name, digest in self.index.files().items()
        )
        return f'<!DOCTYPE html>\n<html><body>\n{"".join(links)}</body></html>\n'

    def _answer(self, status: int, kind: str, content: bytes) -> None:
        self.index.asked.append((self.path.removeprefix(self.index.prefix), kind))
        self.send_response(status)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(len(content)))
        self.end_headers()
        if self.command == 'GET':
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
