"""Refuse the unmodified package, in which this one can't work."""

from pydantic_ai.toolsets import AbstractToolset

if not hasattr(AbstractToolset, 'for_sub_agent'):
    raise ImportError(
        '`hookable_toolset` needs the fork of pydantic-ai that copies stateful toolsets for each run, and this is the '
        "unmodified package. Install the fork in its place; the project's README says how."
    )
