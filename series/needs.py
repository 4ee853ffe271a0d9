"""Find out which patches a patch needs, from the `Needs:` trailers of the series."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from series.message import Message


def direct_needs(messages: Mapping[Path, Message]) -> dict[Path, list[Path]]:
    """Return which earlier patches each patch names; what is no subject of an earlier one is `verify`'s to tell.

    Args:
        messages: The messages of the patches, in the order of the series.
    """
    needs: dict[Path, list[Path]] = {}
    subjects: dict[str, Path] = {}
    for patch, message in messages.items():
        needs[patch] = [subjects[subject] for subject in message.values('Needs') if subject in subjects]
        subjects[message.subject] = patch
    return needs


def all_needs(patches: Collection[Path], needs: Mapping[Path, Collection[Path]]) -> list[Path]:
    """Return patches with all that they need, and what that needs, in the order of the series."""
    found: set[Path] = set()
    waiting = [*patches]
    while waiting:
        patch = waiting.pop()
        if patch not in found:
            found.add(patch)
            waiting += needs[patch]
    return [patch for patch in needs if patch in found]
