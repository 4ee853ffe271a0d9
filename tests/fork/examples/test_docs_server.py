"""The server that the docs convert tells one user what another one has, and no longer once it is converted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from ..test_docs import EXAMPLES, Program


@pytest.mark.parametrize(('app', 'bob'), [('before', '120 euros'), ('after', '75 euros')])
def test_docs_server_tells_a_user(app: str, bob: str, monkeypatch: pytest.MonkeyPatch) -> None:
    example = EXAMPLES['server']
    server = Program(replace(example, code=example.code.replace('from before', f'from {app}')), monkeypatch)
    client = TestClient(server.names['app'])

    said = [client.get('/ask', params={'user': user, 'prompt': 'Mine?'}).json() for user in ('alice', 'bob')]

    assert said == ['{"balance":"120 euros"}', f'{{"balance":"{bob}"}}']
