"""What READMEs and pages have users install is there: the folders of this repository, with packages of these names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomli

ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for pattern in ('*.md', 'docs/**/*.md', 'downstream/*/README.md', 'downstream/*/pyproject.toml')
    for page in ROOT.glob(pattern)
]
PIN = re.compile(r'(?:([\w-]+)(?:\[[\w,-]+\])? @ )?git\+[^\s"\']+?#subdirectory=([\w./-]+)')
TABLE = re.compile(r'^#?\s*(?:([\w-]+) = )?\{ git = "[^"]*", rev = "[^"]*", subdirectory = "([^"]+)" \}', re.MULTILINE)
LOCAL = re.compile(r'\./((?:downstream|pydantic_ai_slim)/[\w./-]+?)(?=[\s`"]|$)')


def pins(text: str) -> Iterator[tuple[str | None, str]]:
    """Find the packages and folders that a text has users install, from a git repository or a clone."""
    for pattern in (PIN, TABLE):
        for found in pattern.finditer(text):
            yield found[1], found[2]
    for found in LOCAL.finditer(text):
        yield None, found[1]


FOUND = [(page, *pin) for page in PAGES for pin in pins(page.read_text('utf-8'))]


def test_each_project_downstream_says_how_to_install_it() -> None:
    for project in (ROOT / 'downstream').glob('*/pyproject.toml'):
        readme = project.with_name('README.md')
        assert (readme, f'downstream/{project.parent.name}') in {(page, folder) for page, _, folder in FOUND}, readme


@pytest.mark.parametrize(
    ('page', 'package', 'folder'), FOUND, ids=[f'{page.relative_to(ROOT)}-{folder}' for page, _, folder in FOUND]
)
def test_pin_names_a_folder_with_a_package_of_that_name(page: Path, package: str | None, folder: str) -> None:
    path = ROOT / folder / 'pyproject.toml'
    assert path.is_file(), f'`{page.relative_to(ROOT)}` pins `{folder}`, which is not there.'
    name = tomli.loads(path.read_text('utf-8'))['project']['name']
    assert package in (None, name)


def test_command_that_is_run_from_a_pin_is_one_of_the_package() -> None:
    commands = [
        shlex.split(line)
        for page in PAGES
        for line in page.read_text('utf-8').splitlines()
        if line.startswith('uvx --from')
    ]
    assert commands
    for _, _, pin, command, *_ in commands:
        (found,) = pins(pin)
        assert command in tomli.loads((ROOT / found[1] / 'pyproject.toml').read_text('utf-8'))['project']['scripts']
