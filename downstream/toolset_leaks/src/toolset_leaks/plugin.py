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
        choices=('fail', 'warn'),
        nargs='?',
        const='fail',
        help='watch all agent runs, and show what one leaves behind for the next; `warn` never fails for that',
    )
    parser.addini(
        'toolset_leaks_shared', 'names of state that runs share on purpose, like `TodoToolset.cache`', type='linelist'
    )


def pytest_configure(config: pytest.Config) -> None:
    """Begin to watch if that's asked for."""
    if mode := config.getoption('--toolset-leaks'):
        config.stash[_KEY] = plugin = _Plugin(mode, config)
        config.pluginmanager.register(plugin, 'toolset-leaks-watch')


class _Plugin:
    """Watches while the tests run, and reports at the end."""

    def __init__(self, mode: str, config: pytest.Config):
        self.mode = mode
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
        elif self.report.leaks and self.mode == 'fail' and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

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
            if finding.name in leaks:
                leaks[finding.name] = dataclasses.replace(
                    leaks[finding.name], times=leaks[finding.name].times + finding.times
                )
            else:
                leaks[finding.name] = finding
        runs = sum(report.runs for report in reports)
        return Report(list(leaks.values()), runs=runs, incomplete=any(report.incomplete for report in reports))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        report = self.report
        terminalreporter.section('toolset leaks')
        if report.leaks:
            terminalreporter.write_line(str(report))
            terminalreporter.write_line('')
            for line in report.table():
                terminalreporter.write_line(line)
        else:
            terminalreporter.write_line(str(report))
