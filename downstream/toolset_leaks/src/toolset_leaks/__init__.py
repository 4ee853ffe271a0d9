"""Find the state that runs of a pydantic-ai agent leave behind in its toolsets, where the next run can see it."""

from .arguments import ArgumentsError
from .drive import assert_no_leak, find_leaks
from .report import Finding, Report, ToolsetLeakError
from .watch import Watch

__all__ = 'ArgumentsError', 'Finding', 'Report', 'ToolsetLeakError', 'Watch', 'assert_no_leak', 'find_leaks'
