"""Tell an index that can't be reached from one that lacks something, and don't try for a minute."""

from __future__ import annotations

import os
from pathlib import Path

_RETRIES = {
    'PIP_RETRIES': '1',
    'UV_HTTP_RETRIES': '1',
    'npm_config_fetch_retries': '1',
    'npm_config_fetch_retry_mintimeout': '1000',
}
"""With their own numbers, pip, uv and npm wait for an index that isn't there for a minute or more, for each thing that they want."""

_WORDS = (
    *('connection broken by', 'Failed to establish a new connection', 'client error (Connect)', 'dns error'),
    # Of pip, for a setting of certificates that leads nowhere.
    'Could not find a suitable TLS CA certificate bundle',
)
"""What pip and uv say of an index that they can't reach. pip then says that there is no matching distribution."""


def environment() -> dict[str, str]:
    """Return the environment for pip, uv and npm, in which what the user has set counts."""
    return _RETRIES | os.environ


def unreachable(said: str) -> bool:
    """Say whether pip or uv couldn't reach an index, from what they said."""
    return any(words in said for words in _WORDS)


def missing_certificates() -> str:
    """Name the settings of certificates that lead nowhere, in sentences to be put in front of advice: uv ignores such a one in silence."""
    names = ('SSL_CERT_FILE', 'SSL_CERT_DIR', 'REQUESTS_CA_BUNDLE', 'CURL_CA_BUNDLE', 'PIP_CERT')
    lost = [name for name in names if (path := os.environ.get(name)) and not Path(path).exists()]
    return ''.join(
        f'`{name}` names `{os.environ[name]}`, which does not exist; correct it or unset it. ' for name in lost
    )
