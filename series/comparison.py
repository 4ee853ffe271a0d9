"""Compare what tests say of the base with what they say of the fork, test by test, from pytest's JUnit XML."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path
from xml.etree import ElementTree

SIDES = ('base', 'fork')

_GOOD = ('passed', 'skipped', 'xfailed')

_ROUNDS = 3
"""How often a test whose outcome differs runs again on both sides."""


@dataclass(frozen=True)
class Result:
    """What came of a test, or of a file that can't be imported or is skipped as a whole."""

    test: str
    """What base and fork know it by."""
    name: str
    """What pytest is asked for it by."""
    outcome: str
    """`passed`, `failed`, `error`, `crashed`, `skipped` or `xfailed`; or several of them."""
    words: str = ''
    """What pytest showed of it, beginning with why it didn't pass."""

    @property
    def is_failure(self) -> bool:
        """Whether pytest would fail for it."""
        return self.outcome not in _GOOD


def read_results(path: Path) -> dict[str, Result]:
    """Read the JUnit XML that pytest has written, by what base and fork know each test by."""
    found: dict[str, Result] = {}
    for case in ElementTree.parse(path).iter('testcase'):
        plain = '::'.join(filter(None, [case.get('classname'), case.get('name')]))
        said = {str(each.get('name')): str(each.get('value')) for each in case.iter('property')}
        test = said.get('known', plain)
        outcome, words = _outcome(case)
        if before := found.get(test):
            # Of a test that fails and whose fixture does too, there are two, and of one that ends its process.
            same = outcome == before.outcome
            outcome, words = outcome if same else f'{before.outcome}, then {outcome}', f'{before.words}\n{words}'
        found[test] = Result(test, said.get('name', plain), outcome, words)
    return found


def _outcome(case: ElementTree.Element) -> tuple[str, str]:
    for kind, outcome in (('failure', 'failed'), ('error', 'error'), ('skipped', 'skipped')):
        if (said := case.find(kind)) is not None:
            words = f'{said.get("message", "")}\n{said.text or ""}'
            if said.get('type') == 'pytest.xfail':
                return 'xfailed', words
            return ('crashed' if 'crashed while running' in words else outcome), words
    return 'passed', ''


@dataclass(frozen=True)
class Compared:
    """A test on base and fork."""

    test: str
    base: Result | None
    fork: Result | None
    again: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """What came of it when it ran again, without others beside it, by `base` and `fork`."""

    @property
    def differs(self) -> bool:
        """Whether its outcome changed. What only the fork has are tests that the patches add."""
        return self.base is not None and (self.fork is None or self.base.outcome != self.fork.outcome)

    @property
    def still_differs(self) -> bool:
        """Whether its outcome also differs when it runs again.

        It does if one of the two, alone, shows an outcome that the other has never shown. So what fails only under load is
        no difference, what fails now and then on both isn't one either, and what fails now and then on the fork alone is.
        """
        if not self.differs or not self.again:
            return self.differs
        alone = {side: set(outcomes) for side, outcomes in self.again.items()}
        seen = {side: alone[side] | {self.outcome(side)} for side in alone}
        return not (alone['base'] <= seen['fork'] and alone['fork'] <= seen['base'])

    @property
    def is_broken(self) -> bool:
        """Whether it's a test that the patches add and that fails, also when it runs again."""
        if self.base is not None or self.fork is None or not self.fork.is_failure:
            return False
        alone = self.again.get('fork', ())
        return not alone or any(outcome not in _GOOD for outcome in alone)

    @property
    def changed_words(self) -> list[str]:
        """How the failure on the fork differs from that on the base, as lines of a diff: times, ids and addresses aside."""
        if not (self.base and self.fork and self.base.is_failure and not self.differs):
            return []
        base, fork = (_without_volatile(result.words).splitlines() for result in (self.base, self.fork))
        lines = unified_diff(base, fork, 'base', 'fork', lineterm='', n=0)
        return [line for line in lines if not line.startswith('@@')]

    def outcome(self, side: str) -> str:
        """Return the outcome on one side, `missing` if that doesn't have the test."""
        found = self.base if side == 'base' else self.fork
        return found.outcome if found else 'missing'


_VOLATILE = re.compile(
    r'datetime\.(?:datetime|date|time|timedelta)\((?:[^()]|\([^()]*\))*\)'
    r'|\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d[\d:.]*(?:Z|[+-]\d\d:?\d\d)?)?'
    r'|0x[0-9a-f]+'
    # Ids: a whole word of hexadecimal digits, or such a part at its end.
    r'|(?<![a-z])(?=[0-9a-f-]*\d)[0-9a-f]{8}[0-9a-f-]*(?![a-z])'
    r'|:\d+(?=:)|\d+\.\d+|\d{4,}'
)


def _without_volatile(text: str) -> str:
    """Return what pytest showed without what is another in each run: times, ids, addresses, numbers of lines, folders."""
    # The way to a failure is the patches' as well; pytest marks what failed with `E`.
    text = '\n'.join(re.findall(r'^E +(?![?] |\+ +where )(.*)', text, re.MULTILINE)) or text
    text = _VOLATILE.sub('…', re.sub(r'/\S*/(?=[^/\s]*)', '', text))
    # How much is shown of what is cut off depends on how long a time was.
    return re.sub(r'^(.{100}).*\.\.\.$', r'\1…', text, flags=re.MULTILINE)


@dataclass(frozen=True)
class Comparison:
    """All tests on base and fork, by name."""

    tests: Sequence[Compared]

    @property
    def differences(self) -> list[Compared]:
        """Those whose outcome changed."""
        return [test for test in self.tests if test.still_differs]

    @property
    def flaky(self) -> list[Compared]:
        """Those whose outcome differed, but not when they ran again."""
        return [test for test in self.tests if test.differs and not test.still_differs]

    @property
    def broken(self) -> list[Compared]:
        """Those that the patches add and that fail."""
        return [test for test in self.tests if test.is_broken]

    @property
    def failing(self) -> list[Compared]:
        """Those that fail on both alike."""
        return [test for test in self.tests if test.base and test.fork and test.base.is_failure and not test.differs]

    @property
    def added(self) -> list[Compared]:
        """Those that only the fork has."""
        return [test for test in self.tests if test.base is None]

    @property
    def common(self) -> int:
        """How many tests both have."""
        return sum(test.base is not None and test.fork is not None for test in self.tests)

    def listed(self, where: str) -> list[str]:
        """Say what is to be seen: what differs, what is new and fails, and what fails on both with other words."""
        found = [
            f'- {test.test}{where}: {test.outcome("base")} on the base, {test.outcome("fork")} on the fork'
            for test in self.differences
        ]
        found += [f'- {test.test}{where}: {test.outcome("fork")}, a test that the patches add' for test in self.broken]
        for test in self.failing:
            if changed := test.changed_words:
                shown = '\n'.join(f'      {line}' for line in changed)
                found.append(f'- {test.test}{where}: {test.outcome("base")} on both, but says something else:\n{shown}')
        return found


Run = Callable[[str, Sequence[str], int], Mapping[str, Result]]
"""Runs tests on a side: all of them in round 0, and in later ones those that are named, without others beside them."""


def compare(run: Run) -> Comparison:
    """Run tests on base and fork, and what differs, and what is new and fails, again."""
    first = {side: run(side, (), 0) for side in SIDES}
    # By name: outcomes come in the order in which several processes happen to have them.
    tests = [
        Compared(test, first['base'].get(test), first['fork'].get(test))
        for test in sorted({*first['base'], *first['fork']})
    ]
    # What one side doesn't have can't run there, and a file that can't be imported is no test.
    suspects = [test for test in tests if (test.still_differs or test.is_broken) and test.fork and '::' in test.test]
    again: dict[str, dict[str, list[str]]] = {}
    for number in range(1, _ROUNDS + 1 if suspects else 1):
        for side in SIDES:
            named = {test.test: result.name for test in suspects if (result := first[side].get(test.test))}
            found: Mapping[str, Result] = run(side, [*named.values()], number) if named else {}
            for test in named:
                outcome = found[test].outcome if test in found else 'crashed'
                again.setdefault(test, {}).setdefault(side, []).append(outcome)
    return Comparison([Compared(test.test, test.base, test.fork, again.get(test.test, {})) for test in tests])
