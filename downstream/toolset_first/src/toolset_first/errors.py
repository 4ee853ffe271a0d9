"""The error that all others derive from."""

from __future__ import annotations


class ToolsetFirstError(Exception):
    """Something that the author or the user of a project can put right. The message says how."""
