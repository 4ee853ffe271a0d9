"""Derive the fork's metadata from the base's own."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import Distribution
from typing import Any

from hatchling.metadata.spec import project_metadata_from_core_metadata
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from pydantic_ai_slim.fork.errors import LineError
from pydantic_ai_slim.fork.line import PinnedLine
from pydantic_ai_slim.fork.names import DIST_NAME


def fork_metadata(base: Distribution, line: PinnedLine) -> dict[str, Any]:
    """Derive the fork's project metadata from the base's own.

    Args:
        base: The metadata of the installed base.
        line: Its line, for the version and the caps.

    Returns:
        The fields as the `[project]` table of a `pyproject.toml` spells them.

    Raises:
        LineError: A cap names a package that the base doesn't require.
    """
    metadata = project_metadata_from_core_metadata(base.read_text('METADATA') or '')
    metadata['version'] = line.version
    if line.url:
        metadata['urls'] = {**metadata.get('urls', {}), 'Fork': line.url}
    metadata['dependencies'] = [_capped(requirement, line.caps) for requirement in metadata['dependencies']]
    metadata['optional-dependencies'] = {
        extra: [_capped(requirement, line.caps) for requirement in requirements]
        for extra, requirements in metadata.get('optional-dependencies', {}).items()
    }
    required = {canonicalize_name(Requirement(requirement).name) for requirement in base.requires or ()}
    if unused := sorted(line.caps.keys() - required):
        raise LineError(
            f'`{line.folder / "line.toml"}` caps {", ".join(f"`{name}`" for name in unused)}, which `{DIST_NAME}` '
            f'{line.base} does not require. Correct the name or remove the cap, and build again.'
        )
    scripts = base.entry_points.select(group='console_scripts')
    metadata['scripts'] = {script.name: script.value for script in scripts}
    return metadata


def _capped(requirement: str, caps: Mapping[str, str]) -> str:
    """Add the cap of the required package, if there is one, to the version bounds of a requirement."""
    parsed = Requirement(requirement)
    parsed.specifier &= SpecifierSet(caps.get(canonicalize_name(parsed.name), ''))
    return str(parsed)
