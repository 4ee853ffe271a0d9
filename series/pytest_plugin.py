"""What pytest is given to run upstream's tests on base and fork: tests have one name on both, find their servers, and end.

It runs in an environment that has nothing else of ours; so it imports nothing of ours either, and is copied there.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put into the JUnit XML what pytest is asked for each test by, and what base and fork know it by if that is something else."""
    numbers: Counter[str] = Counter()
    for item in items:
        # xdist adds the group to what it is called after this.
        item.user_properties.append(('name', item.nodeid))
        if known := _known_as(item):
            numbers[known] += 1
            item.user_properties.append(('known', f'{known}#{numbers[known]}' if numbers[known] > 1 else known))
    _use_temporal(os.environ.get('SERIES_TEMPORAL'))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Go on with the groups of a process that a test or a limit of time has ended, without that test. xdist 3.8.0 waits for ever.

    Its #1324, #1328 and #1371, which no release has yet, do the same.
    """
    from xdist.scheduler import LoadGroupScheduling  # pyright: ignore[reportMissingTypeStubs]

    class Scheduling(LoadGroupScheduling):
        def remove_node(self, node: Any) -> str | None:
            groups = self.assigned_work.pop(node)
            ended = next((test for tests in groups.values() for test, is_done in tests.items() if not is_done), None)
            if ended:
                groups[self._split_scope(ended)][ended] = True
            # A process that is given a group with nothing to run asks for no other
            self.workqueue.update({name: tests for name, tests in groups.items() if not all(tests.values())})
            for other in self.nodes:
                self._reschedule(other)
            return ended

        def _reschedule(self, node: Any) -> None:
            if node not in self.registered_collections:  # It still looks for tests
                return
            with suppress(OSError):  # It has ended, which is told later
                super()._reschedule(node)
                if self._pending_of(self.assigned_work[node]) == 1:
                    super()._reschedule(node)  # It holds its last test back until it is given another, or told to end

    return Scheduling(config, log) if config.getoption('dist') == 'loadgroup' else None


def _known_as(item: pytest.Item) -> str:
    """Return what an example is called on either side.

    Upstream calls the examples in its docs by their lines, which differ between base and fork as soon as something is
    written above. What an example says takes the line's place.
    """
    for value in getattr(getattr(item, 'callspec', None), 'params', {}).values():
        source, line = getattr(value, 'source', None), getattr(value, 'start_line', None)
        if isinstance(source, str) and f':{line}' in item.nodeid:
            digest = hashlib.sha256(source.encode()).hexdigest()[:8]
            return item.nodeid.replace(f':{line}', f':{digest}', 1)
    return ''


def _use_temporal(program: str | None) -> None:
    """Have Temporal start the server that is on this machine, instead of downloading one; or have it not wait for that if there is none."""
    testing = sys.modules.get('temporalio.testing')
    if program is None or testing is None:
        return
    start = testing.WorkflowEnvironment.start_local

    async def refuse(*_: object, **__: object) -> None:
        raise RuntimeError('`temporal`, which has the server, is not on the path.')

    found = functools.partial(start, dev_server_existing_path=program) if program else refuse
    testing.WorkflowEnvironment.start_local = staticmethod(found)
