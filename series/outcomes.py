"""Compare what upstream's tests say of the base with what they say of the fork, test by test."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MISSING = 'missing'
"""What stands for the outcome of a test that one of the two doesn't have."""


@dataclass(frozen=True)
class Result:
    """What came of a test, or of a file that can't be imported or is skipped as a whole."""

    test: str
    """What base and fork know it by."""
    outcome: str
    """In pytest's words: `passed`, `failed`, `error`, `skipped`, `xfailed`, `xpassed`; or `crashed`, or several of them."""
    seconds: float = 0
    message: str = ''
    """Why it didn't pass, in a line."""
    words: str = ''
    """What pytest showed of it."""

    @property
    def bad(self) -> bool:
        """Whether pytest would fail for it."""
        return self.outcome not in ('passed', 'skipped', 'xfailed', 'xpassed')


def load(path: Path) -> dict[str, Result]:
    """Read the outcomes that were noted, even if the last one was being written when all ended."""
    found: dict[str, Result] = {}
    for text in path.read_text('utf-8').splitlines() if path.exists() else ():
        try:
            result = Result(**json.loads(text))
        except ValueError:
            continue
        found[result.test] = result
    return found


@dataclass
class Compared:
    """A test on base and fork."""

    test: str
    base: Result | None
    fork: Result | None
    again: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """What came of it when it ran again and alone, by `base` and `fork`."""

    @property
    def differs(self) -> bool:
        """Whether its outcome changed. What only the fork has are tests that the patches add."""
        return self.base is not None and (self.fork is None or self.base.outcome != self.fork.outcome)

    @property
    def stands(self) -> bool:
        """Whether its outcome also differs when the test runs alone.

        It does if one of the two, alone, shows an outcome that the other has never shown. So what fails only under load is
        no difference, what fails now and then on both isn't one either, and what fails now and then on the fork alone is.
        """
        if not self.differs or not self.again:
            return self.differs
        alone = {side: set(outcomes) for side, outcomes in self.again.items()}
        seen = {side: alone[side] | {self.outcome(side)} for side in alone}
        return not (alone['base'] <= seen['fork'] and alone['fork'] <= seen['base'])

    @property
    def breaks(self) -> bool:
        """Whether it's a test that the patches add and that fails, also when it runs alone."""
        if self.base is not None or self.fork is None or not self.fork.bad:
            return False
        alone = self.again.get('fork', ())
        return not alone or any(Result(self.test, outcome).bad for outcome in alone)

    @property
    def says_otherwise(self) -> bool:
        """Whether it fails on both, but for another reason: addresses, ids and times aside."""
        if not (self.base and self.fork and self.base.bad and not self.differs):
            return False
        return _reason(self.base.message) != _reason(self.fork.message)

    def outcome(self, side: str) -> str:
        """Return the outcome on one side."""
        found = self.base if side == 'base' else self.fork
        return found.outcome if found else MISSING


def _reason(message: str) -> str:
    """Return a message without what is another one in each run."""
    message = re.sub(r'/\S*/(?=[^/\s]*)', '', message)
    return re.sub(r'0x[0-9a-f]+|\b[0-9a-f-]{8,}\b|\d+\.\d+|\d{4,}', '…', message)


@dataclass(frozen=True)
class Comparison:
    """All tests of a cell, by name."""

    tests: Sequence[Compared]

    @property
    def differences(self) -> list[Compared]:
        """Those whose outcome changed."""
        return [test for test in self.tests if test.stands]

    @property
    def flaky(self) -> list[Compared]:
        """Those whose outcome differed, but not when they ran alone."""
        return [test for test in self.tests if test.differs and not test.stands]

    @property
    def broken(self) -> list[Compared]:
        """Those that the patches add and that fail."""
        return [test for test in self.tests if test.breaks]

    @property
    def otherwise(self) -> list[Compared]:
        """Those that fail on both for another reason."""
        return [test for test in self.tests if test.says_otherwise]

    @property
    def suspects(self) -> list[Compared]:
        """Those that run again: what differs, and what is new and fails."""
        return [test for test in self.tests if test.stands or test.breaks]

    @property
    def failing(self) -> list[Compared]:
        """Those that fail on both alike, which says nothing."""
        return [test for test in self.tests if test.base and test.fork and test.base.bad and not test.differs]

    @property
    def added(self) -> list[Compared]:
        """Those that only the fork has."""
        return [test for test in self.tests if test.base is None]

    @property
    def common(self) -> int:
        """How many tests both have."""
        return sum(test.base is not None and test.fork is not None for test in self.tests)

    def count(self, side: str) -> Counter[str]:
        """Count the outcomes of one side."""
        return Counter(result.outcome for test in self.tests if (result := test.base if side == 'base' else test.fork))


def compare(
    base: Mapping[str, Result],
    fork: Mapping[str, Result],
    again: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
) -> Comparison:
    """Put the outcomes of base and fork side by side.

    Args:
        base: The outcomes on the base, by test.
        fork: Those on the fork.
        again: What came of tests that ran again and alone, by test and then by `base` and `fork`.
    """
    again = again or {}
    # By name: outcomes come in the order in which several processes happen to have them.
    return Comparison(
        [Compared(test, base.get(test), fork.get(test), again.get(test, {})) for test in sorted({*base, *fork})]
    )
