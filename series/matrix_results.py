"""Keep what the plugin notes of upstream's tests, so that a run that was interrupted goes on where it stopped."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from series.folders import write
from series.outcomes import Result, load


@dataclass(frozen=True)
class Results:
    """A folder in which the plugin notes results, with what else there is to know of them."""

    folder: Path

    @property
    def seconds(self) -> float:
        """How long the tests took, all runs together."""
        path = self.folder / 'seconds'
        return float(path.read_text()) if path.exists() else 0

    def add_seconds(self, seconds: float) -> None:
        """Note how long another run took."""
        write(self.folder / 'seconds', str(self.seconds + seconds))

    @property
    def whole(self) -> bool:
        """Whether every test has a result."""
        return (self.folder / 'whole').exists()

    def finish(self) -> None:
        """Note that every test has a result, unless some don't."""
        if self.names().keys() <= self.load().keys():
            (self.folder / 'whole').touch()

    def names(self) -> dict[str, str]:
        """Return what pytest calls each test, by what base and fork know it by."""
        path = self.folder / 'tests.json'
        listed: list[tuple[str, str, str]] = json.loads(path.read_text('utf-8')) if path.exists() else []
        return {known: name for known, name, _ in listed}

    def load(self) -> dict[str, Result]:
        """Return the results, by test."""
        return load(self._noted)

    def count(self) -> int:
        """Count the results without reading them."""
        return self._noted.read_bytes().count(b'\n') if self._noted.exists() else 0

    def drop_half(self) -> list[str]:
        """Remove what was being written when all ended, to which the next result would be added; return which tests have one."""
        results = self.load()
        write(self._noted, ''.join(json.dumps(vars(result)) + '\n' for result in results.values()))
        return list(results)

    @property
    def _noted(self) -> Path:
        return self.folder / 'outcomes.jsonl'
