"""The census is whole: each package was looked at by a person, and each leak has its text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomllib

ROOT = Path(__file__).parents[2]
CENSUS = ROOT / 'tests' / 'census'
PAGE = (ROOT / 'docs' / 'downstream' / 'toolset-census.md').read_text('utf-8')
RESULTS: dict[str, Any] = json.loads((CENSUS / 'results.json').read_text('utf-8'))
VERDICTS: dict[str, Any] = tomllib.loads((CENSUS / 'verdicts.toml').read_text('utf-8'))


def verdict(subject: str, name: str) -> dict[str, str]:
    about = VERDICTS[subject]
    return about.get(name) or about['*']


def test_census_has_thirty_packages_on_its_page():
    packages = {result['package'] for result in RESULTS.values()}

    assert len(packages) >= 30
    assert f'\n{len(packages)} packages, {len(RESULTS)} agents, ' in PAGE
    assert all(f'- **{package} ' in PAGE for package in packages)
    assert 'not yet checked' not in PAGE


@pytest.mark.parametrize('subject', RESULTS)
def test_census_says_of_each_finding_what_a_person_decided(subject: str):
    leaks = RESULTS[subject]['leaks']

    assert all(verdict(subject, leak['name'])['verdict'] in ('leak', 'on purpose', 'bookkeeping') for leak in leaks)
    assert leaks or VERDICTS[subject]['quiet']


def test_census_has_a_text_with_the_smallest_fix_for_each_package_that_leaks():
    leaking = {
        result['package']
        for subject, result in RESULTS.items()
        if any(verdict(subject, leak['name'])['verdict'] == 'leak' for leak in result['leaks'])
    }
    texts = {text.split()[0]: text for text in PAGE.partition('<!-- census: end -->')[2].split('\n## ')[1:]}

    assert texts.keys() == leaking
    assert 'haiku-skills' in leaking  # keeps one user's skills for the next
    for text in texts.values():
        assert '**Where:**' in text
        assert '**The smallest fix:**' in text
