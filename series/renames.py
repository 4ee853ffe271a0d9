"""Mend the names in tests of another release of upstream, by the rules in `renames.toml`."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import tomllib


def rename(text: str) -> str:
    """Return the source of a test with today's names in the place of those of before."""
    for old, new in _rules():
        text = re.sub(rf'(?<!\w){re.escape(old)}(?!\w)', new, text)
    return text


@cache
def _rules() -> list[tuple[str, str]]:
    """Return the old names and the new ones, longer ones first: a module comes before the package that it is in."""
    rules: dict[str, str] = tomllib.loads(Path(__file__).with_name('renames.toml').read_text('utf-8'))['renamed']
    return sorted(rules.items(), key=lambda rule: -len(rule[0]))
