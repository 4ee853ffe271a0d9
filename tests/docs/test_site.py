"""The site is built, and not with a link that leads nowhere."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = [path.parent.name for path in (ROOT / 'patches').glob('*/line.toml')]
LINE = LINES[0]


@pytest.fixture(scope='module', autouse=True)
def _site() -> None:
    # It makes the environment and the sources of the pages too; what is there already is kept.
    subprocess.run(['make', '--silent', 'docs'], cwd=ROOT, check=True, capture_output=True)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a folder with all that the site is built of, in which its pages and those of the tree may be changed."""
    for name in ('docs', *(f'build/{line}/docs' for line in LINES)):
        shutil.copytree(ROOT / name, tmp_path / name)
    sources = [f'build/{line}/pydantic_ai_slim' for line in LINES]
    for name in ('CHANGELOG.md', 'README.md', 'mkdocs.yml', 'patches', 'tests', 'build/docs', *sources):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def build(folder: Path) -> str:
    """Build a copy as `make docs` does, and return what was said if it was refused."""
    recipe = subprocess.run(
        ['make', '--silent', '--dry-run', 'docs'], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    arguments = recipe.strip().rpartition('-m mkdocs ')[2].split()
    done = subprocess.run(
        [ROOT / 'build/envs/docs/bin/python', '-m', 'mkdocs', *arguments, '--config-file', folder / 'mkdocs.yml'],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {'NO_MKDOCS_2_WARNING': '1'},
    )
    return done.stdout + done.stderr if done.returncode else ''


def append(page: Path, text: str) -> None:
    page.write_text(f'{page.read_text("utf-8")}\n{text}\n', 'utf-8')


def test_site_with_links_that_lead_nowhere_is_refused(copy: Path) -> None:
    append(copy / 'docs/pinning.md', '[a](no-such-page.md) [b](verbs.md#no-such-heading)')
    lifecycle = copy / f'build/{LINE}/docs/toolset-lifecycle.md'
    append(lifecycle, '[c](no-such-page-of-upstream.md) [d][pydantic_ai.no_such_thing]')

    said = [line for line in build(copy).splitlines() if line.startswith('WARNING')]

    targets = ['no-such-page.md', '#no-such-heading', 'no-such-page-of-upstream.md', 'pydantic_ai.no_such_thing']
    assert sorted(target for target in targets for line in said if target in line) == sorted(targets)
    assert len(said) == len(targets)


def test_site_draws_diagrams_itself_and_refers_to_upstream_for_the_rest(copy: Path) -> None:
    append(copy / 'docs/pinning.md', '```mermaid\nflowchart TB\n    a --> b\n```')
    append(copy / f'build/{LINE}/docs/toolset-lifecycle.md', '[a](agents.md#x) [`b`][pydantic_ai.mcp.MCPServer]')

    assert build(copy) == ''

    site = copy / 'build/site'
    lifecycle = (site / LINE / 'toolset-lifecycle/index.html').read_text('utf-8')
    assert 'href="https://ai.pydantic.dev/agents/#x"' in lifecycle
    assert 'href="https://ai.pydantic.dev/api/mcp/#pydantic_ai.mcp.MCPServer"' in lifecycle
    assert 'href="../api/#pydantic_ai.toolsets.AbstractToolset.copy"' in lifecycle
    assert 'src="../assets/mermaid.tiny.js"' in (site / 'pinning/index.html').read_text('utf-8')
    assert 'mermaid' not in (site / 'verbs/index.html').read_text('utf-8')
    assert (site / 'assets/mermaid.tiny.js').stat().st_size > 1_000_000
