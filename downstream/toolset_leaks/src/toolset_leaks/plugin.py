"""The pytest plugin: `pytest --toolset-leaks` watches all runs of a test suite."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from typing import Any

import pytest

from .report import Finding, Report
from .watch import Watch

_KEY = pytest.StashKey['_Plugin']()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the settings."""
    group = parser.getgroup('toolset-leaks')
    group.addoption(
        '--toolset-leaks',
        action='store_true',
        help='watch all agent runs, and fail if one leaves state behind for the next',
    )
    group.addoption(
        '--toolset-leaks-warn',
        action='store_true',
        help='the same, but only show what a run leaves behind, and never fail for it',
    )
    parser.addini(
        'toolset_leaks_shared', 'names of state that runs share on purpose, like `TodoToolset.cache`', type='linelist'
    )


def pytest_configure(config: pytest.Config) -> None:
    """Begin to watch if that's asked for."""
    warn = bool(config.getoption('--toolset-leaks-warn'))
    if warn or config.getoption('--toolset-leaks'):
        config.stash[_KEY] = plugin = _Plugin(warn, config)
        config.pluginmanager.register(plugin, 'toolset-leaks-watch')


class _Plugin:
    """Watches while the tests run, and reports at the end."""

    def __init__(self, warn: bool, config: pytest.Config):
        self.warn = warn
        self.failed = False
        self.config = config
        self.watch = Watch(shared=config.getini('toolset_leaks_shared'))
        self.workers: list[Report] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        with self.watch:
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.watch.context = item.nodeid
        return (yield)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if (output := getattr(self.config, 'workeroutput', None)) is not None:  # a worker of pytest-xdist
            output['toolset_leaks'] = dataclasses.asdict(self.watch.report)
        elif self.report.leaks and not self.warn and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            self.failed = True

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        if found := getattr(node, 'workeroutput', {}).get('toolset_leaks'):
            self.workers.append(Report(**found | {'leaks': [Finding(**finding) for finding in found['leaks']]}))

    @property
    def report(self) -> Report:
        """What was found, in this process and in the workers, each place once."""
        reports = [self.watch.report, *self.workers]
        leaks: dict[str, Finding] = {}
        for finding in (finding for report in reports for finding in report.leaks):
            known = leaks.setdefault(finding.name, dataclasses.replace(finding, times=0))
            known.times += finding.times
        runs = sum(report.runs for report in reports)
        noted = {name: text for report in reports for name, text in report.noted.items() if name not in leaks}
        too_much = any(report.too_much for report in reports)
        return Report(list(leaks.values()), noted=noted, runs=runs, too_much=too_much)

    # The outermost: what pytest itself shows, as the list of failed tests, comes before.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> Generator[None, object, object]:
        result = yield
        terminalreporter.section('toolset leaks')
        terminalreporter.write_line(str(self.report))
        if self.failed:
            terminalreporter.write_line('')
            terminalreporter.write_line(
                'All tests passed, and pytest fails for this. `--toolset-leaks-warn` only shows it.'
            )
        return result
