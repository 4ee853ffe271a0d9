"""Build the wheel of a line."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from email.message import Message
from importlib.metadata import Distribution, version
from pathlib import Path

import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pydantic_ai_slim.fork.digests import digest_files
from pydantic_ai_slim.fork.errors import ForkError
from pydantic_ai_slim.fork.folder import check_folder
from pydantic_ai_slim.fork.metadata import fork_metadata
from pydantic_ai_slim.fork.names import PACKAGE
from series.base import base_wheel, unpack_wheel
from series.environments import line_python, make_environment
from series.errors import SeriesError, quoted
from series.folders import lock, scratch
from series.line import Line
from series.pins import build_folder
from series.progress import Report


def build(
    line: Line,
    report: Report,
    *,
    dist: Path | None = None,
    python: Path | None = None,
    umask: int = -1,
    variables: Mapping[str, str] | None = None,
    base: Path | None = None,
) -> Path:
    """Build the wheel of a line and return its path.

    It has the same bytes wherever it is built: hatchling is of the tool's own release, which is locked with its hash, and the
    time of all files is that which hatchling gives them. The base is a folder to the builder, which runs nothing of it, and
    what the base requires isn't there. The finished wheel is compared with what the line pins.

    Args:
        dist: The folder that it is put into; by default `dist/`.
        python: The interpreter that builds; by default the running one, if the line supports it.
        umask: What the builder's files are not permitted; by default as the process has it.
        variables: Environment variables of the builder.
        base: The base's wheel, if it is at hand and was checked.
    """
    dist = dist or line.root / 'dist'
    with (
        lock(line.root, f'wheel-{line.name}', line.make('build')),
        scratch(line.root, dist, 'build') as folder,
    ):
        for stale in dist.glob(f'*-{line.version}-*.whl'):
            stale.unlink()
        # As it is by now: an extract may have pinned other patches since the line was read.
        line = Line.load(line.folder)
        project = build_folder(line)
        _check_folders(line, project)
        unpacked = folder / 'base'
        unpack_wheel(base or base_wheel(line, report), unpacked)
        report(f'Building the wheel of {line.version}')
        builder = find_builder(folder / 'builder', python or line_python(line))
        (out := folder / 'out').mkdir()
        # Neither variables nor what users have installed change the interpreter, nor does bytecode stand for a module.
        command = [builder, '-I', '-X', f'pycache_prefix={folder / "bytecode"}', '-c', _BUILD, unpacked, out]
        environment = os.environ | {'NO_COLOR': '1'} | dict(variables or {})
        # Not in a session of its own: who kills this kills the builder.
        done = subprocess.run(
            command,
            cwd=project,
            env=environment,
            umask=umask,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding='utf-8',
            errors='replace',
            check=False,
        )
        wheels = list(out.glob('*.whl'))
        if done.returncode or len(wheels) != 1:
            raise _error(line, done.stdout)
        if faults := list(wheel_faults(line, wheels[0], unpacked)):
            listed = '\n'.join(f'- {fault}' for fault in faults)
            raise SeriesError(
                f'The wheel of {line.version} that came out is not what its line pins, and was thrown away:\n{listed}',
                f'Something changes what is built: look at `git status --ignored -- pydantic_ai_slim` and at `git diff`, then run '
                f'`{line.make("build")}` again.',
            )
        return wheels[0].replace(dist / wheels[0].name)


_BUILD = """\
import sys
base, out = sys.argv[1:]
sys.path.append(base)  # at the end, and read for its metadata and files only; as no folder of a site, with no `.pth` of it
from hatchling.build import build_wheel
build_wheel(out)
"""


def find_builder(folder: Path, python: Path) -> Path:
    """Return an interpreter that has hatchling and what that needs, as they are locked for the tool.

    That of the tool has them. For any other Python an environment is made.

    Args:
        folder: Where that environment goes.
        python: The interpreter that it is made of.
    """
    if python == Path(sys.executable):
        return python
    locked = Path(__file__).parents[1] / 'requirements' / 'tool.txt'
    return make_environment(
        folder, python, ['--require-hashes', '--constraint', locked, f'hatchling=={version("hatchling")}']
    )


def _check_folders(line: Line, project: Path) -> None:
    """Check the folder that a wheel is built from before a builder reads it, which would take orders from any `hatch.toml`."""
    try:
        settings = tomllib.loads((project / 'pyproject.toml').read_text('utf-8'))
        check_folder(project, settings['project']['license-files'], line)
    except ForkError as error:
        raise SeriesError(f'The wheel of {line.version} was not built.', str(error)) from None
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise SeriesError(
            f'The wheel of {line.version} was not built: `{line.show(project / "pyproject.toml")}` is not valid: {error}.',
            f'Restore it with `git checkout -- {line.show(project)}`, then run `{line.make("build")}` again.',
        ) from None


def wheel_faults(line: Line, wheel: Path, base: Path) -> Iterator[str]:
    """Say in what a finished wheel isn't the fork of a line. It is read by this process, and not by the one that built it.

    Args:
        wheel: The wheel.
        base: The unpacked base, which was checked.
    """
    with zipfile.ZipFile(wheel) as content:
        files = {name: content.read(name) for name in content.namelist() if not name.endswith('/')}
    info = f'{wheel.name.partition("-")[0]}-{line.version}.dist-info/'
    inside = {name.removeprefix(info): files[name] for name in files if name.startswith(info)}
    package = {name: text for name, text in files.items() if name.startswith(f'{PACKAGE}/')}
    licences = {name.removeprefix('licenses/'): text for name, text in inside.items() if name.startswith('licenses/')}
    for what, found, pinned in (
        ('package', digest_files(package), line.patched),
        ('licences', digest_files(licences), line.licences),
    ):
        if found != pinned:
            yield f'Its {what} has another digest than `{line.show(line.folder)}/line.toml` pins: {found}, not {pinned}.'
    more = (
        files.keys() - package.keys() - {info + name for name in (*_INFO, *(f'licenses/{name}' for name in licences))}
    )
    if more:
        yield f'It has files that belong to no fork: {quoted(sorted(more))}.'
    own = Distribution.at(next(path for path in base.iterdir() if path.suffix == '.dist-info'))
    if inside.get('entry_points.txt', b'').decode() != (own.read_text('entry_points.txt') or ''):
        yield 'Its scripts are not those of the base.'
    yield from _metadata_faults(email.message_from_bytes(inside.get('METADATA', b'')), own, line)


_INFO = ('METADATA', 'WHEEL', 'RECORD', 'entry_points.txt')


def _metadata_faults(found: Message, own: Distribution, line: Line) -> Iterator[str]:
    """Compare what a wheel says of itself with what the base says, but for what the fork changes."""
    wanted = fork_metadata(own, line)
    required = [
        *wanted['dependencies'],
        *(one for requirements in wanted['optional-dependencies'].values() for one in requirements),
    ]
    base = email.message_from_string(own.read_text('METADATA') or '')
    expected = {field: base.get_all(field, []) for field in {*base.keys(), *found.keys()}}
    expected |= {'Version': [line.version], 'License-File': found.get_all('License-File', [])}
    expected['Project-URL'] = [f'{label}, {url}' for label, url in wanted.get('urls', {}).items()]
    for field in sorted(expected.keys() - {'Requires-Dist'}):
        if found.get_all(field, []) != expected[field]:
            yield f'Its metadata has {field!r} {found.get_all(field, [])}, not {expected[field]}.'
    if {_bare(text) for text in found.get_all('Requires-Dist', [])} != {_bare(text) for text in required}:
        yield 'It does not require what the base requires, within the caps of the line.'
    if found.get_payload() != base.get_payload():
        yield 'Its description is not that of the base.'


def _bare(text: str) -> tuple[str, tuple[str, ...], str]:
    """Return a requirement without its marker, in which builders write extras as they like."""
    requirement = Requirement(text)
    return canonicalize_name(requirement.name), tuple(sorted(requirement.extras)), str(requirement.specifier)


def _error(line: Line, output: str) -> SeriesError:
    # The hook ends the build with the name and the message of its error.
    said = re.search(r'^\w+Error: (.+)', output, re.MULTILINE | re.DOTALL)
    if said and 'Traceback' not in output:
        return SeriesError(f'The wheel of {line.version} was not built.', said[1].strip())
    return SeriesError(
        f'The wheel of {line.version} was not built.',
        f"These are the builder's words; put right what they name, then run `{line.make('build')}` again.",
        output,
    )
