"""Serve a step of the tutorial on this machine: `python -m examples.tutorial STEP`."""

from __future__ import annotations

import socket
from argparse import ArgumentParser
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from fastapi.responses import FileResponse

from examples.tutorial.model import DATA

PAGES = Path(__file__).parents[1] / 'pages'
STEPS = range(1, 7)


def app_of(step: int) -> FastAPI:
    """Return the app of a step, with the page that shows the chat."""
    DATA.mkdir(parents=True, exist_ok=True)
    app: FastAPI = import_module(f'examples.tutorial.step{step}').app

    @app.get('/')
    async def page() -> FileResponse:
        return FileResponse(PAGES / 'chat.html')

    @app.get('/style.css')
    async def style() -> FileResponse:
        return FileResponse(PAGES / 'style.css')

    return app


def main() -> None:
    """Serve the step that the command line names."""
    parser = ArgumentParser(prog='make tutorial', description=__doc__)
    parser.add_argument('step', type=int, choices=STEPS, help='the step, from 1 to 6')
    parser.add_argument('--port', type=int, default=8000, help='the port; 0 for a free one (default: 8000)')
    options = parser.parse_args()
    app = app_of(options.step)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(('127.0.0.1', options.port))
        except OSError as error:
            parser.exit(1, f'error: Port {options.port} is in use ({error}). Name another with ARGS="--port 8001".\n')
        listener.listen()  # so that whoever opens the page at once waits
        url = f'http://127.0.0.1:{listener.getsockname()[1]}'
        print(f'Step {options.step}. Open {url}/?user=ada and {url}/?user=bob. Ctrl-C stops the server.', flush=True)
        # When it stops, requests have a second to end by themselves.
        config = uvicorn.Config(app, log_level='warning', ws='none', timeout_graceful_shutdown=1)
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run([listener])


if __name__ == '__main__':
    main()
