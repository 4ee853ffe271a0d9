"""What can keep the demonstration from running: every error says what and why, then the next command."""

from __future__ import annotations

from series.errors import SeriesError


class DemoError(SeriesError):
    """A demonstration that can't be shown."""


class MissingEnvironmentError(DemoError):
    """An interpreter that is not there, or that can't be started."""


class UnusableModelError(DemoError):
    """A model that an environment can't use: its package or its key is missing, or there is no such model."""


class FailedScriptError(DemoError):
    """A script that ended with an error, or printed something else than results."""
