"""The page on decisions is short."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_decisions_says_only_what_would_surprise() -> None:
    assert len((ROOT / 'docs/decisions.md').read_text('utf-8').split()) <= 2150
