"""Without a network, a command says so, after one more attempt: with those of pip and uv it would take a minute."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from series.build import build
from series.environments import make_environment
from series.errors import DownloadError, OfflineError
from series.index import find_release
from series.line import Line
from series.verbs.apply import apply
from tests.series.upstream import ROOT, quiet

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def unreachable(shut_out: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that can't be reached."""
    for name in ('PIP_NO_INDEX', 'UV_OFFLINE', 'ALL_PROXY', 'HTTPS_PROXY'):
        monkeypatch.delenv(name)
    monkeypatch.setenv('PIP_INDEX_URL', 'http://127.0.0.1:9/simple/')
    monkeypatch.setenv('UV_DEFAULT_INDEX', 'http://127.0.0.1:9/simple/')
    monkeypatch.setenv('UV_NO_CACHE', '1')


def test_apply_without_a_network_says_so(uncached: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv('PIP_FIND_LINKS')
    with pytest.raises(OfflineError) as error:
        apply(uncached, quiet)
    assert f'{error.value.problem}\n{error.value.remedy}' == (
        'The package index cannot be reached, and `pydantic-ai-slim===1.0.0` is not on this machine yet.\n'
        'Check the connection and the configuration of pip (`pip config list`) and uv, then run the same command again.'
    )
    assert error.value.words.count('connection broken by') == 1


def test_build_of_what_is_at_hand_needs_no_network(buildable: Line) -> None:
    assert build(buildable, quiet).exists()


def test_environments_and_releases_without_a_network_say_so(tmp_path: Path) -> None:
    with pytest.raises(OfflineError, match='The package index cannot be reached, and what the environment') as error:
        make_environment(tmp_path / 'environment', Path(sys.executable), ['six'])
    assert 'failed after 1 retry in' in error.value.words
    with pytest.raises(DownloadError, match='The package index cannot be reached, and what it knows of `six`'):
        find_release('six')


def test_setting_of_certificates_that_leads_nowhere_is_named_for_pip_and_uv(
    uncached: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv('PIP_FIND_LINKS')
    for name in ('SSL_CERT_FILE', 'PIP_CERT'):
        monkeypatch.setenv(name, '/no/such.pem')
    named = ' '.join(
        f'`{name}` names `/no/such.pem`, which does not exist; correct it or unset it.'
        for name in ('SSL_CERT_FILE', 'PIP_CERT')
    )
    for call in (
        lambda: apply(uncached, quiet),
        lambda: make_environment(tmp_path / 'made', Path(sys.executable), ['six']),
    ):
        with pytest.raises(OfflineError) as error:
            call()
        assert error.value.remedy.startswith(f'{named} Check the connection')


def test_tool_environment_without_a_network_says_so(tmp_path: Path) -> None:
    """That is the first step of `make fork` on a bare clone."""
    checkout = bare(tmp_path, (ROOT / 'requirements/tool.txt').read_text())
    done = make(checkout)
    assert done.returncode
    assert (
        'error: The tool environment `build/tool` was not made: the package index cannot be reached.\n'
        "Check the connection and pip's configuration (`pip config list`), then run the same command again.\n"
    ) in done.stderr
    assert done.stderr.count('connection broken by') == 1
    assert not (checkout / 'build/tool/.ready').exists()


def test_tool_environment_that_two_make_at_once_is_made_once(tmp_path: Path) -> None:
    checkout = bare(tmp_path, '')
    running = [start(checkout) for _ in range(2)]
    said = [(*process.communicate(), process.returncode) for process in running]
    assert [code for *_, code in said] == [0, 0], said
    assert ''.join(out for out, *_ in said).count('Making the tool environment') == 1
    assert (checkout / 'build/tool/.ready').exists()


def bare(folder: Path, requirements: str) -> Path:
    """Make what of a bare clone belongs to the tool environment."""
    shutil.copytree(ROOT / 'series', folder / 'clone' / 'series', ignore=shutil.ignore_patterns('__pycache__'))
    shutil.copy(ROOT / 'Makefile', folder / 'clone')
    (folder / 'clone' / 'requirements').mkdir()
    (folder / 'clone' / 'requirements' / 'tool.txt').write_text(requirements)
    return folder / 'clone'


def start(checkout: Path) -> subprocess.Popen[str]:
    command = ['make', 'build/tool/.ready', f'PYTHON3={sys.executable}']
    return subprocess.Popen(
        command, cwd=checkout, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def make(checkout: Path) -> subprocess.CompletedProcess[str]:
    process = start(checkout)
    out, errors = process.communicate()
    return subprocess.CompletedProcess([], process.returncode, out, errors)
