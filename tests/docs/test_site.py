"""The site is built, and not with a link that leads nowhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from series.line import find_line

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
LINE = find_line(ROOT).name


@pytest.fixture
def copy(prepared: None, tmp_path: Path) -> Path:
    """Return a folder with all that the site is built of, in which its pages and those of the tree may be changed, and whose name is a pattern."""
    folder = tmp_path / 'a [b]'
    for name in ('docs', f'build/{LINE}/docs'):
        shutil.copytree(ROOT / name, folder / name)
    source = f'build/{LINE}/pydantic_ai_slim'
    for name in ('CHANGELOG.md', 'README.md', 'examples', 'mkdocs.yml', 'patches', 'tests', 'build/docs', source):
        (folder / name).symlink_to(ROOT / name)
    return folder


def build(folder: Path) -> str:
    """Build a copy as `make docs` does, and return what was said if it was refused."""
    recipe = subprocess.run(
        ['make', '--silent', '--dry-run', 'docs'], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    arguments = recipe.strip().rpartition('-m mkdocs ')[2].split()
    done = subprocess.run(
        [ROOT / 'build/envs/more/bin/python', '-m', 'mkdocs', *arguments, '--config-file', folder / 'mkdocs.yml'],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {'NO_MKDOCS_2_WARNING': '1'},
    )
    return done.stdout + done.stderr if done.returncode else ''


def append(page: Path, text: str) -> None:
    page.write_text(f'{page.read_text("utf-8")}\n{text}\n', 'utf-8')


# One test, since it takes half a minute to build the site. A strict build writes all pages before it refuses what is wrong.
def test_site_refuses_links_that_lead_nowhere_and_nothing_else(copy: Path) -> None:
    append(
        copy / 'docs/pinning.md', '[a](no-such-page.md) [b](verbs.md#no-such-heading) [e][pydantic_ai.no_such_thing]'
    )
    append(copy / 'docs/pinning.md', '```mermaid\nflowchart TB\n    a --> b\n```')
    links = (
        '[a](agents.md#x) [b](../durable_execution/dbos.md) [`c`][pydantic_ai.messages.ModelRequest] '
        '[`d`][pydantic_ai.toolsets.AbstractToolset.copy]'
    )
    append(copy / f'build/{LINE}/docs/toolset-lifecycle.md', f'{links}\n\n[d](no-such-page-of-a-patch.md)')

    said = [line for line in build(copy).splitlines() if line.startswith('WARNING')]

    targets = ['no-such-page.md', '#no-such-heading', 'pydantic_ai.no_such_thing', 'no-such-page-of-a-patch.md']
    assert sorted(target for target in targets for line in said if target in line) == sorted(targets)
    # So the site as it is would not be refused.
    assert len(said) == len(targets)
    check_pages(copy / 'build/site')


def check_pages(site: Path) -> None:
    """Check that the site draws diagrams itself, finds messages, and refers to upstream for the rest."""
    upstream = 'https://pydantic.dev/docs/ai'
    lifecycle = (site / 'toolset-lifecycle/index.html').read_text('utf-8')
    assert f'href="{upstream}/agents/#x"' in lifecycle
    assert f'href="{upstream}/capabilities/durable_execution/dbos/"' in lifecycle
    assert f'href="{upstream}/api/messages/#pydantic_ai.messages.ModelRequest"' in lifecycle
    assert 'href="../api/toolsets/#pydantic_ai.toolsets.AbstractToolset.copy"' in lifecycle
    assert 'src="../assets/mermaid.tiny.js"' in (site / 'pinning/index.html').read_text('utf-8')
    assert 'mermaid' not in (site / 'verbs/index.html').read_text('utf-8')
    assert (site / 'assets/mermaid.tiny.js').stat().st_size > 1_000_000
    entries = json.loads((site / 'search/search_index.json').read_text('utf-8'))['docs']
    [found] = [entry for entry in entries if entry['title'] == 'A second block cannot open']
    assert found['text'].startswith('A scope is opened once. Make a new ToolsetScope')
    row = f'<span id="{found["location"].partition("#")[2]}"></span>A second block'
    assert row in (site / 'errors/index.html').read_text('utf-8')
