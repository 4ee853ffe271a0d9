"""What no patch of any line may add to the core, and how large the tool may be."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pydantic_ai_slim.fork.line import patch_name
from series.git import Git
from series.line import Line, find_lines
from series.message import all_needs, direct_needs, read_message
from series.sizes import changed_lines

LINES = find_lines(Path(__file__).parents[2])

CONTEXT_VARIABLES = {
    # What `override()` has set, as for all else that it sets.
    '_override_deferred_tool_handler': 'agent/__init__.py',
    # Which run of a Prefect flow is current, from which the keys of its tasks are made.
    'agent_run': 'durable_exec/prefect/_cache_policies.py',
    'current_agent_run': 'durable_exec/prefect/_utils.py',
    # The one for lifecycles, on older bases: that of `get_current_run_context()`, which the base of 2.68.0 has.
    '_CURRENT_RUN_CONTEXT': '_run_context.py',
}
"""The context variables that patches add, with their modules."""

TABLES = {
    # The schemas of tool functions, by the function, weakly.
    '_generated_schemas': '_function_schema.py',
    # Classes, so that each is warned about once.
    '_warned_about': 'toolsets/_lifecycle/checks.py',
}
"""What modules keep and add to, which is no toolset and of no run."""

LOCKS = {
    # Of a scope, which is opened once. A pool has one for each key, and none for itself
    'toolsets/scope.py': r'^self\.\w+(, self\.\w+)? = (asyncio\.Future\[None\]\(\), )?asyncio\.Event\(\)$',
    # Of the calls of one run to a toolset
    'durable_exec/_toolset_state.py': r'^lock: anyio\.Lock = field\(default_factory=anyio\.Lock\)$',
}
"""What the locks of patches look like, by module: each goes with a run or a scope."""

LINES_OF_TOPICS = {
    'heart': 1_500,
    'fixes': 420,
    'checks': 120,
    'capabilities': 90,
    'scopes': 560,
    'durable': 480,
    'describe': 150,
    'speed': 550,
}
"""How many lines the patches of a topic may add to the package, empty ones, comments and docstrings among them."""

OWN_TEXT = 1.1
"""By which factor a topic may be larger on an older line, whose base lacks what the newest one has."""

STANDS_ON = {
    'fixes': set[str](),
    'heart': {'fixes'},
    'checks': {'heart', 'fixes'},
    'capabilities': {'heart', 'fixes', 'checks'},
    'scopes': {'heart', 'fixes', 'checks'},
    'durable': {'heart', 'fixes', 'checks', 'scopes'},
    'describe': {'heart', 'fixes', 'checks', 'capabilities', 'scopes'},
    'speed': {'heart', 'fixes', 'checks', 'capabilities', 'scopes'},
}
"""Which topics the patches of a topic may need. That each applies on what it needs alone is what `verify` checks."""

EMPTY = r'\{\}|\[\]|(?:dict|list|set|deque|defaultdict|OrderedDict|Weak\w+)(?:\[.*\])?\('


@pytest.fixture(params=LINES, ids=lambda line: line.name)
def added(request: pytest.FixtureRequest) -> list[tuple[str, str]]:
    """What the patches of a line add, unless a later one takes it away again: the module and the line."""
    line: Line = request.param
    found: list[tuple[str, str]] = []
    for patch in line.patches:
        for gone in changed_lines(patch, '-'):
            if gone in found:
                found.remove(gone)
        found += changed_lines(patch)
    return found


def where(added: list[tuple[str, str]], pattern: str) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield the modules and the matches of lines that a pattern is found in, comments and docstrings left out."""
    for module, text in added:
        if '`' not in text and not text.lstrip().startswith('#') and (found := re.search(pattern, text)):
            yield module, found


def test_limits_no_class_is_touched(added: list[tuple[str, str]]) -> None:
    touches = r'__init_subclass__|__subclasshook__|\bsetattr\((?!copied|self\.wrapped)|\b(cls|type\(\w+\))\.\w+ = |\.__(class|bases)__ = '
    assert [(module, found.string) for module, found in where(added, touches)] == []


def test_limits_context_variables_are_few(added: list[tuple[str, str]]) -> None:
    found = {match[1]: module for module, match in where(added, r'(\w+): ContextVar\[')}
    assert len(found) == len({*where_created(added, r'\bContextVar(\[.*\])?\(')})
    assert found.items() <= CONTEXT_VARIABLES.items()


def where_created(added: list[tuple[str, str]], pattern: str) -> list[str]:
    return [f'{module}: {found.string}' for module, found in where(added, pattern)]


def test_limits_no_module_keeps_a_table(added: list[tuple[str, str]]) -> None:
    found = {match[1]: module for module, match in where(added, rf'^(\w+)(?:(?:: .+)? = (?:{EMPTY})|: \w+\[$)')}
    assert found == {name: module for name, module in TABLES.items() if module in dict(added)}


def test_limits_no_class_keeps_a_table(added: list[tuple[str, str]]) -> None:
    found = [(module, match.string) for module, match in where(added, rf'^    (\w+)(?:: ClassVar.*)? = (?:{EMPTY})')]
    assert [text for module, text in found if module.startswith('toolsets/') and 'ClassVar' in text] == []


def test_limits_toolsets_find_nothing_by_run_id(added: list[tuple[str, str]]) -> None:
    assert [entry for entry in where(added, r'\brun_id\b') if entry[0].startswith('toolsets/')] == []


def test_limits_locks_belong_to_runs(added: list[tuple[str, str]]) -> None:
    """A run's locks go with it. What an agent keeps outlives event loops."""
    made = [
        (module, match.string.strip())
        for module, match in where(added, r'\b(R?Lock|Event|Condition|\w*Semaphore|CapacityLimiter)(?=\(|\)$|, repr)')
        # The base's own lock of a combination, which is copied
        if '_enter_lock' not in match.string
    ]
    assert made
    assert [(module, text) for module, text in made if not re.search(LOCKS.get(module, '$^'), text)] == []


@pytest.fixture(params=LINES, ids=lambda line: line.name)
def line(request: pytest.FixtureRequest) -> Line:
    return request.param


def topic(patch: Path) -> str:
    return patch_name(patch).partition('/')[0]


def test_limits_topics_and_patches_stay_small(line: Line) -> None:
    lines = {patch: len(changed_lines(patch)) for patch in line.patches}
    of_topics = {name: sum(lines[patch] for patch in lines if topic(patch) == name) for name in LINES_OF_TOPICS}
    assert sum(of_topics.values()) == sum(lines.values())
    factor = 1 if line.name == LINES[-1].name else OWN_TEXT
    assert {name: count for name, count in of_topics.items() if count > factor * LINES_OF_TOPICS[name]} == {}
    assert {patch_name(patch): count for patch, count in lines.items() if count > 250} == {}


def test_limits_topics_stand_on_the_heart(line: Line) -> None:
    needs = direct_needs({patch: read_message(patch) for patch in line.patches})
    beside = {
        (patch_name(patch), patch_name(need))
        for patch in line.patches
        for need in all_needs([patch], needs)
        if topic(need) not in {topic(patch), *STANDS_ON[topic(patch)]}
    }
    assert beside == set()


def test_limits_the_private_package_is_six_modules_that_import_in_one_direction(added: list[tuple[str, str]]) -> None:
    package = 'toolsets/_lifecycle/'
    modules: dict[str, list[str]] = {}
    for module, text in added:
        if module.startswith(package) and module != f'{package}describe.py':
            modules.setdefault(module.removeprefix(package).removesuffix('.py'), []).append(text)
    assert len(modules) <= 6
    assert sum(map(len, modules.values())) <= 800
    imports = {
        name: {found[1] for text in lines if (found := re.match(r'from \.(\w+) import', text))}
        for name, lines in modules.items()
    }
    while ready := [name for name, needed in imports.items() if not needed & {*imports}]:
        for name in ready:
            del imports[name]
    assert imports == {}


@pytest.mark.parametrize(
    ('files', 'most'),
    [('series/*.py', 6_500), ('tests/series/*.py', 5_900), ('tests/hook/*.py', 1_070), ('downstream', 20_000)],
)
def test_limits_the_tool_its_tests_and_the_projects_stay_small(files: str, most: int) -> None:
    root = Path(__file__).parents[2]
    paths = Git(root).lines('ls-files', files)
    assert sum((root / path).read_text('utf-8').count('\n') for path in paths) <= most


@pytest.mark.parametrize('name', ['heart', 'scopes'])
def test_limits_older_lines_are_mostly_the_same_text(name: str) -> None:
    *older, newest = LINES
    twins = {patch_name(patch): Counter(changed_lines(patch)) for patch in newest.patches}
    for line in older:
        added = {patch_name(patch): Counter(changed_lines(patch)) for patch in line.patches if topic(patch) == name}
        common = sum((lines & twins.get(patch, Counter())).total() for patch, lines in added.items())
        assert common >= 0.9 * sum(lines.total() for lines in added.values())
