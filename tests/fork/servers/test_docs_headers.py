"""The example of the docs gives an MCP server the headers of each user, also of two users at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..test_docs import EXAMPLES, Example, Program
from .serving import serving

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings('ignore::DeprecationWarning')]

ASKED: dict[str, Any] = {
    'name': 'who_am_i',
    'description': 'Say who asks.',
    'inputSchema': {'type': 'object', 'properties': {}},
}


async def answer(request: Request) -> Response:
    """Answer as an MCP server that knows nothing but who asks it."""
    asked: dict[str, Any] = await request.json()
    if 'id' not in asked:
        return Response(status_code=202)
    results: dict[str, Any] = {
        'initialize': {
            'protocolVersion': '2025-06-18',
            'capabilities': {'tools': {}},
            'serverInfo': {'name': 'shop', 'version': '1'},
        },
        'tools/list': {'tools': [ASKED]},
        'tools/call': {'content': [{'type': 'text', 'text': request.headers['authorization']}]},
    }
    if asked['method'] not in results:
        error = {'code': -32601, 'message': 'Method not found'}
        return JSONResponse({'jsonrpc': '2.0', 'id': asked['id'], 'error': error})
    return JSONResponse({'jsonrpc': '2.0', 'id': asked['id'], 'result': results[asked['method']]})


async def test_docs_example_gives_the_server_the_headers_of_each_user(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving([Route('/mcp', answer, methods=['POST'])]) as address:
        code = EXAMPLES['headers'].code.replace('https://shop.example.com', f'http://{address}')
        program = Program(Example('headers', code), monkeypatch)

        printed = await asyncio.gather(program.run(), program.run())

    assert [each.splitlines() for each in printed] == [EXAMPLES['headers'].prints] * 2
