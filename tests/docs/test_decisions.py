"""The page on decisions is short, and what it says of one text on both lines holds."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path

import pytest

from series.git import environment
from series.line import Line, find_lines
from series.sizes import share, sizes

ROOT = Path(__file__).parents[2]
LINES = find_lines(ROOT)

LIFECYCLE = [
    'Accept functions of the run context in the `toolsets` of a run',
    'Accept toolset classes and functions without parameters in `toolsets`',
    'Add `stateful` and `copy()` to `AbstractToolset`',
    'Give each run one instance of each stateful toolset, and enter it once',
    'Enter only what runs share in `async with agent:`',
    'Refuse copies of stateful toolsets that are not new',
    'Refuse stateful toolsets that hand-written wrappers hide',
    "Refuse a factory's stateful toolset that another run works with",
    "Warn when a toolset's copy shares mutable state",
    'Let toolsets say what sub-agents get in their place',
    'Refuse a borrowed toolset that its owner has exited',
    'Call a borrowed session in the event loop that it was entered in',
    'Add `RunContext.for_sub_agent()` to hand toolsets over to a sub-agent',
    'Add `shared()` to toolsets to overrule what sub-agents get',
    'Give access to the instance that an agent run works with',
    'Keep stateful toolsets across runs in a `ToolsetScope`',
    'Keep toolset scopes by key in a `ToolsetScopePool`',
    'Export the state of a `ToolsetScope`, and open one with it',
    'Prepare to describe what agent runs work with in place of toolsets',
    'Add `describe_lifecycle()` to show what agent runs share',
]
"""The patches that are about where the state of toolsets lives, and not about a bug of one base, a handler or speed."""


def test_decisions_says_only_what_would_surprise() -> None:
    assert len((ROOT / 'docs/decisions.md').read_text('utf-8').split()) <= 3500


def test_lines_share_most_of_what_the_lifecycle_patches_add() -> None:
    found = [size for size in sizes(LINES) if size.subject in LIFECYCLE]

    assert sorted(size.subject for size in found) == sorted(LIFECYCLE)
    assert all(size.common for size in found)
    assert share(found) >= 0.85


@pytest.fixture(scope='module')
def modules(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """The modules that the patches of each line add to the package, as all patches leave them."""
    return [new_modules(line, tmp_path_factory.mktemp('modules')) for line in LINES]


def new_modules(line: Line, folder: Path) -> dict[str, str]:
    """Apply those parts of patches that are about modules of the package which they add; this needs no base."""
    package = 'pydantic_ai_slim/pydantic_ai'
    texts = {patch: patch.read_text('utf-8') for patch in line.patches}
    made = rf'^diff --git a/{package}/(\S+\.py) b/\S+\nnew file mode'
    names = {name for text in texts.values() for name in re.findall(made, text, re.MULTILINE)}
    for patch, text in texts.items():
        touched = [name for name in sorted(names) if f' b/{package}/{name}\n' in text]
        if touched:
            apply_part(patch, [f'{package}/{name}' for name in touched], folder)
    return {name: (folder / package / name).read_text('utf-8') for name in names}


def apply_part(patch: Path, paths: Sequence[str], folder: Path) -> None:
    chosen = [f'--include={path}' for path in paths]
    # Outside of any repository, whose folder git would take the paths to be relative to
    outside = environment() | {'GIT_CEILING_DIRECTORIES': str(folder.parent)}
    subprocess.run(['git', 'apply', *chosen, str(patch)], cwd=folder, env=outside, check=True)


def test_lines_have_the_same_text_in_most_of_the_core(modules: list[dict[str, str]]) -> None:
    older, newer = (
        {name: text.splitlines() for name, text in line.items() if name.startswith('toolsets/_lifecycle/')}
        for line in modules[-2:]
    )

    assert older.keys() == newer.keys()
    assert len(newer) <= 8 + 1  # and `__init__.py`
    matcher = {name: SequenceMatcher(None, older[name], newer[name], autojunk=False) for name in newer}
    common = sum(block.size for each in matcher.values() for block in each.get_matching_blocks())
    assert common / max(sum(map(len, older.values())), sum(map(len, newer.values()))) >= 0.85
