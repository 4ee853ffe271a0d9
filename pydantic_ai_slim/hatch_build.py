"""Build the fork of a line with hatchling: an adapter to the package `fork` beside it, which reads from its `build` on.

Every line has a folder beside this file with a `pyproject.toml` that names this file as its metadata hook and its build hook.
"""

import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

# hatchling loads this file by its path. What it uses is loaded likewise, from its source: not from bytecode, which git
# ignores, nor from whatever else has the name.
FORK = Path(__file__).parent / 'fork'
sys.dont_write_bytecode, sys.pycache_prefix = True, os.devnull
spec = importlib.util.spec_from_file_location(
    'pydantic_ai_slim.fork', FORK / '__init__.py', submodule_search_locations=[str(FORK)]
)
assert spec is not None
# Beside a module, a folder or a compiled module of the same name would be loaded in its place.
if rogue := [
    path.name for path in FORK.iterdir() if path.name != '__pycache__' and not (path.is_file() and path.suffix == '.py')
]:
    sys.exit(
        f'BuildFolderError: In `{FORK}` there is what does not belong there: {", ".join(f"`{name}`" for name in sorted(rogue))}. '
        f'Move it away, and build again.'
    )
sys.modules['pydantic_ai_slim.fork'] = importlib.util.module_from_spec(spec)

from pydantic_ai_slim.fork.build import clear_message, fill_in, lay_out


class LineMetadataHook(MetadataHookInterface):
    """Give the fork the base's own metadata, with the fork's version and the line's caps."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in the fields that the `pyproject.toml` declares as dynamic."""
        with clear_message():
            fill_in(metadata, Path(self.root))


class LineBuildHook(BuildHookInterface[Any]):
    """Lay the patched base into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the files of the wheel in a temporary folder and tell hatchling to include them."""
        # Lives until the builder lets go of the hook: the files are read only after this method.
        self.folder = tempfile.TemporaryDirectory(prefix='fork-')
        with clear_message():
            tree = Path(self.folder.name).resolve()
            build_data['force_include'].update(lay_out(Path(self.root), self.target_name, version, tree))
        # hatchling would make it the time of all files in the wheel.
        self.epoch = os.environ.pop('SOURCE_DATE_EPOCH', None)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folder."""
        self.folder.cleanup()
        if self.epoch is not None:
            os.environ['SOURCE_DATE_EPOCH'] = self.epoch
