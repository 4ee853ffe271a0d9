"""Build the fork of a line: the released base, with the patches of the line applied.

Every line has a folder beside this file with a `pyproject.toml` that names this file as its metadata hook and its build
hook. It reads from the top down: what stops a build, the two hooks, then what they do, in the order of a build and each
function above its helpers. The hooks are thin adapters; all the rest works without hatch, and the series tool uses it too.

There is no `from __future__ import annotations` here: hatchling loads this file without putting it into `sys.modules`,
where `dataclasses` would look up annotations that are strings.
"""

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface
from hatchling.metadata.spec import project_metadata_from_core_metadata
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # hatchling requires it on Python 3.10

DIST_NAME = 'pydantic-ai-slim'
"""The name of the distribution, the same for base and fork, so that whatever depends on the base resolves to the fork."""

PACKAGE = 'pydantic_ai'
"""The folder of the importable package, in a wheel and in an environment."""

UPSTREAM_FOLDER = 'pydantic_ai_slim'
"""The folder of upstream's repository that holds `PACKAGE`; paths in patches start with it."""

PACKAGE_PATH = f'{UPSTREAM_FOLDER}/{PACKAGE}'
"""Where patches have the package. A build takes what they change there, and nothing else."""


# What stops a build


class ForkError(Exception):
    """Something that stops a build; the message says what failed and what to do next."""


class LineError(ForkError):
    """A `line.toml` that is missing or wrong, or a line folder that isn't where it belongs."""


class BaseMismatchError(ForkError):
    """The base in the environment isn't the release that the line is pinned to."""


class ForkMismatchError(ForkError):
    """The base with the patches isn't the package that the line is pinned to, or the line isn't pinned to one."""


class FileNameError(ForkError):
    """A file whose name no release would have."""


class GitMissingError(ForkError):
    """There is no `git` to apply patches with."""


class UnsupportedBuildError(ForkError):
    """A source distribution, an editable installation or a build without hooks, which the fork can't have."""


class PatchError(ForkError):
    """A patch that doesn't apply, or that takes more than it may.

    Attributes:
        patch: The patch file.
        output: What git said, if it was asked.
    """

    def __init__(self, message: str, patch: Path, output: str) -> None:
        super().__init__(message)
        self.patch = patch
        self.output = output


# The hooks


class LineMetadataHook(MetadataHookInterface):
    """Give the fork the base's own metadata, with the fork's version and the line's caps."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in the fields that the `pyproject.toml` declares as dynamic."""
        with _clear_message():
            check_hooks()
            line = line_of(Path(self.root))
            fields = fork_metadata(find_base(line).distribution, line)
        metadata.update((field, fields[field]) for field in metadata['dynamic'])


class LineBuildHook(BuildHookInterface[Any]):
    """Lay the patched base into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the files of the wheel in a temporary folder and tell hatchling to include them."""
        with _clear_message():
            check_build(self.target_name, version)
            line = line_of(Path(self.root))
            base = find_base(line)
            # Lives until the builder lets go of the hook: the files are read only after this method.
            self.folder = tempfile.TemporaryDirectory(prefix='fork-')
            tree = Path(self.folder.name).resolve()
            write_package(base.files, tree)
            apply_patches(line.patches, tree)
            paths = check_package(line, tree)
        # One by one, since hatchling would leave some names out of a folder.
        build_data['force_include'].update(
            (str(path), path.relative_to(tree / UPSTREAM_FOLDER).as_posix()) for path in paths
        )
        # hatchling would make it the time of all files in the wheel.
        self.epoch = os.environ.pop('SOURCE_DATE_EPOCH', None)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folder."""
        self.folder.cleanup()
        if self.epoch is not None:
            os.environ['SOURCE_DATE_EPOCH'] = self.epoch


@contextmanager
def _clear_message() -> Generator[None]:
    """End the build with the message of a `ForkError` alone, since a traceback would bury it."""
    try:
        yield
    except ForkError as error:
        sys.exit(f'{type(error).__name__}: {error}')


def check_hooks() -> None:
    """Check that the build hook will run: without it, the wheel would be that of the fork and have nothing in it.

    Raises:
        UnsupportedBuildError: It is switched off.
    """
    if os.environ.get('HATCH_BUILD_NO_HOOKS') in ('true', '1'):
        raise UnsupportedBuildError(
            'The fork cannot be built without hooks, since a hook applies the patches. Unset the environment variable '
            '`HATCH_BUILD_NO_HOOKS`, or leave the option for that out, and build again.'
        )


def check_build(target: str, version: str) -> None:
    """Check that what is to be built is a wheel to install.

    Args:
        target: What hatchling builds: `wheel` or `sdist`.
        version: The kind of wheel: `standard` or `editable`.

    Raises:
        UnsupportedBuildError: It is something else.
    """
    if target == 'sdist':
        raise UnsupportedBuildError(
            'The fork has no source distribution: it is made of the installed base and of the patches in a checkout of its '
            'repository, and a source distribution would hold neither. Build a wheel in the checkout instead, with '
            '`make build`, `uv build --wheel` or `python -m build --wheel`.'
        )
    if version != 'standard':
        raise UnsupportedBuildError(
            'The fork has no editable installation: its source is made anew from the base and the patches at every build. '
            'Install it without `--editable`; to change it, edit the tree that `make apply` makes.'
        )


# The pins of a line


@dataclass(frozen=True)
class Archive:
    """A source distribution on the index, of which a line's tree holds something that the base's wheel doesn't."""

    package: str
    version: str
    digest: str


@dataclass(frozen=True)
class PinnedLine:
    """One upstream release that the series is carried on, as its `line.toml` describes it."""

    folder: Path
    """The folder with the patches and the `line.toml`."""
    base: str
    """The base's version."""
    released: date
    """The day on which the base was published."""
    number: int
    """The fork's number N."""
    digest: str
    """What `content_digest()` of the base must be."""
    patched: str | None
    """What `package_digest()` of the base with the patches must be; `None` before `make extract` has written it."""
    python: tuple[str, ...]
    """The supported Python versions."""
    tests: Archive | None
    """What upstream's tests, and its settings for running and checking them, come from."""
    settings: Archive | None
    """Instead of `tests`, where no release ships any that fit the base: the tree then has those of our patches only."""
    caps: Mapping[str, str]
    """Upper bounds of dependencies, by their normalized names, that the fork adds to the base's own requirements."""

    @property
    def version(self) -> str:
        """The fork's version."""
        return f'{self.base}+lifecycle.{self.number}'

    @property
    def patches(self) -> list[Path]:
        """The patch files of the series, in order."""
        return sorted(self.folder.glob('*.patch'))


def line_of(root: Path) -> PinnedLine:
    """Read the line that a build folder belongs to.

    Args:
        root: The folder with the `pyproject.toml`: `pydantic_ai_slim/<line>` in a checkout.

    Raises:
        LineError: As `load_line()`.
    """
    return load_line(root.resolve().parent.parent / 'patches' / root.resolve().name)


def load_line(folder: Path) -> PinnedLine:
    """Read the `line.toml` in the folder of a line.

    Raises:
        LineError: The file is missing or wrong; the message lists every fault.
    """
    path = folder / 'line.toml'
    try:
        data = tomllib.loads(path.read_text(encoding='utf-8'))
    except FileNotFoundError:
        raise LineError(
            f'There is no line `{folder.name}`: `{path}` does not exist. The fork is built inside a checkout of its '
            f'repository, where `patches/` and `pydantic_ai_slim/` stand side by side. Clone the repository and build '
            f'`pydantic_ai_slim/{folder.name}` there.'
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise LineError(f'`{path}` is not valid TOML: {error}. Correct the file and build again.') from error

    faults = list(_line_faults(data, folder.name))
    if faults:
        listed = '\n'.join(f'- {fault}' for fault in faults)
        raise LineError(f'`{path}` is not a valid line:\n{listed}\nCorrect the file and build again.')
    return PinnedLine(
        folder=folder,
        base=data['base'],
        released=data['released'],
        number=data['number'],
        digest=data['digest'],
        patched=data.get('patched'),
        python=tuple(data['python']),
        tests=Archive(**data['tests']) if 'tests' in data else None,
        settings=Archive(**data['settings']) if 'settings' in data else None,
        caps={canonicalize_name(name): cap for name, cap in data['caps'].items()},
    )


def _line_faults(data: dict[str, Any], name: str) -> Iterator[str]:
    """Say everything that is wrong with the content of the `line.toml` of the line `name`."""

    def is_text(value: Any) -> bool:
        return isinstance(value, str) and value != ''

    def is_digest(value: Any) -> bool:
        return is_text(value) and re.fullmatch('sha256:[0-9a-f]{64}', value) is not None

    def is_bound(value: Any) -> bool:
        try:
            return is_text(value) and len(SpecifierSet(value)) > 0
        except InvalidSpecifier:
            return False

    def is_kind(value: Any, kind: type) -> bool:  # a plain `isinstance()` would narrow to `list[Unknown]`
        return isinstance(value, kind)

    def is_archive(value: Any) -> bool:
        return (
            is_kind(value, dict)
            and value.keys() == {'package', 'version', 'digest'}
            and all(map(is_text, value.values()))
            and is_digest(value['digest'])
        )

    values: list[Any] = [data.get(key) for key in ('number', 'python', 'caps')]
    number, python, caps = values
    a_digest = '`sha256:` and 64 hexadecimal digits'
    an_archive = f'a table of `package`, `version` and `digest`, the last being {a_digest}'
    checks = {
        'base': (data.get('base') == name, f'the name of the folder, {name!r}'),
        'released': (type(data.get('released')) is date, 'a date such as `2025-12-03`'),
        'number': (type(number) is int and number > 0, 'a whole number from 1'),
        'digest': (is_digest(data.get('digest')), a_digest),
        'patched': ('patched' not in data or is_digest(data['patched']), a_digest),
        'python': (is_kind(python, list) and all(map(is_text, python or [''])), 'a list such as `["3.12"]`'),
        'tests': ('tests' not in data or is_archive(data['tests']), an_archive),
        'settings': ('settings' not in data or is_archive(data['settings']), an_archive),
        'caps': (
            is_kind(caps, dict) and all(map(is_bound, caps.values())),
            'a table of version bounds by package, such as `httpx = "<1"`',
        ),
    }
    for key, (is_right, wanted) in checks.items():
        if not is_right:
            yield f'`{key}` must be {wanted}, but is {data.get(key)!r}.'
    if len({'tests', 'settings'} & data.keys()) != 1:
        yield 'There must be either `tests`, which bring the settings along, or `settings` alone.'
    for key in sorted(data.keys() - checks.keys()):
        yield f'`{key}` is not a key of a line; the keys are {", ".join(f"`{known}`" for known in checks)}.'


# The base


@dataclass(frozen=True)
class Base:
    """The installed base of a line, as it was when it was compared with the pin."""

    distribution: Distribution
    """Its metadata, from the folder that is part of the digest."""
    files: Mapping[str, bytes]
    """The content of the `base_files()` by their paths."""


def find_base(line: PinnedLine) -> Base:
    """Find the base of a line in the running environment and check that it is what the line is pinned to.

    Raises:
        BaseMismatchError: It is missing, there are several, it is of another version, or it has other content.
        FileNameError: As `digest_files()`.
    """
    try:
        found = distribution(DIST_NAME)
    except PackageNotFoundError:
        raise BaseMismatchError(
            f'The fork of {line.base} is built from the installed base, but `{DIST_NAME}` is not installed in the build '
            f'environment. Build without `--no-build-isolation`, or install `{DIST_NAME}==={line.base}` there first.'
        ) from None
    folder = Path(str(found.locate_file('')))
    info = base_info(folder)
    base = Distribution.at(info) if info else found
    if base.version != line.base:
        raise BaseMismatchError(
            f'The fork of {line.base} is built from the installed base, but the build environment holds `{DIST_NAME}` '
            f'{base.version}. Build without `--no-build-isolation`, or install `{DIST_NAME}==={line.base}` there first: '
            f'with three equals signs, since two accept the fork itself too.'
        )
    # Read once, so that what is built is what was compared.
    files = {name: path.read_bytes() for name, path in base_files(folder).items()}
    digest = digest_files(files)
    if digest != line.digest:
        raise BaseMismatchError(
            f'The content of the installed `{DIST_NAME}` {line.base} in `{folder}` is not what '
            f'`{line.folder / "line.toml"}` is pinned to:\n'
            f'expected {line.digest}\n'
            f'found    {digest}\n'
            f'Either the installed files were changed, or the package index serves another file under this version. Empty '
            f'the cache of your installer, with `pip cache remove pydantic_ai_slim` or `uv cache clean {DIST_NAME}`, and '
            f'build again; if the digests still differ, do not trust that package index.'
        )
    return Base(base, files)


def content_digest(folder: Path) -> str:
    """Compute the digest of the content that the base distributes.

    It is the same for an unpacked wheel and for what any installer made of that wheel.

    Args:
        folder: As for `base_files()`.

    Returns:
        As `digest_files()`.

    Raises:
        BaseMismatchError: As `base_info()`.
        FileNameError: As `digest_files()`.
    """
    return digest_files({name: path.read_bytes() for name, path in base_files(folder).items()})


def base_files(folder: Path) -> dict[str, Path]:
    """Find the files that the base distributes.

    Args:
        folder: What holds `pydantic_ai/` and `pydantic_ai_slim-<version>.dist-info/`: an unpacked wheel, or the
            `site-packages` of an environment.

    Returns:
        The files by their paths relative to `folder`, in order, with slashes on every platform. Left out is what an
        installer or an interpreter adds: `RECORD`, `INSTALLER` and the like, and `__pycache__`.

    Raises:
        BaseMismatchError: As `base_info()`.
    """
    patterns = [f'{PACKAGE}/**/*']
    if info := base_info(folder):
        patterns += [f'{info.name}/{part}' for part in ('METADATA', 'entry_points.txt', 'licenses/**/*')]
    # A symlink counts as what it leads to: installers can link a package to their cache.
    found = {path.relative_to(folder): path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    return {
        name: path
        for name, path in sorted((relative.as_posix(), path) for relative, path in found.items())
        if '/__pycache__/' not in name
    }


def base_info(folder: Path) -> Path | None:
    """Find the folder with the metadata of the base.

    Args:
        folder: As for `base_files()`.

    Returns:
        The folder, or `None` when there is none.

    Raises:
        BaseMismatchError: There are several. An installer makes one, under any spelling of the name, from a folder that a
            wheel brings along, and Python may read the metadata and the scripts from that.
    """
    found = sorted(path for path in folder.iterdir() if _is_info(path.name))
    if len(found) > 1:
        raise BaseMismatchError(
            f'There are several folders with the metadata of `{DIST_NAME}` in `{folder}`: '
            f'{", ".join(f"`{path.name}`" for path in found)}. The fork takes its metadata from one that is pinned. Build '
            f'without `--no-build-isolation`, or install `{DIST_NAME}` there anew; if there are still several, the package '
            f'index serves another file than the release. Do not trust it then.'
        )
    return found[0] if found else None


def _is_info(name: str) -> bool:
    """Say whether Python, or anyone who goes by the name, would read the metadata of the base from a folder."""
    stem, dot, suffix = name.rpartition('.')
    if not dot or suffix.lower() not in ('dist-info', 'egg-info'):
        return False
    return DIST_NAME in {canonicalize_name(part) for part in (stem, stem.partition('-')[0], stem.rpartition('-')[0])}


# The metadata


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


# The patches


def copy_package(source: Path, tree: Path) -> None:
    """Copy the base's package into a folder, in the layout of upstream's repository.

    Args:
        source: As `folder` of `base_files()`.
        tree: An existing folder, which gets `pydantic_ai_slim/pydantic_ai/…`.
    """
    write_package({name: path.read_bytes() for name, path in base_files(source).items()}, tree)


def write_package(files: Mapping[str, bytes], tree: Path) -> None:
    """Write the base's package into a folder, in the layout of upstream's repository.

    Args:
        files: As `Base.files`; all but the package is left out.
        tree: As for `copy_package()`.
    """
    for name, content in files.items():
        if name.startswith(f'{PACKAGE}/'):
            target = tree / UPSTREAM_FOLDER / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


def apply_patches(patches: Iterable[Path], tree: Path) -> None:
    """Apply what patches change in the package; their tests and docs are left out.

    Args:
        patches: The patch files, in order.
        tree: A folder with what `copy_package()` made. It is changed even if a later patch fails.

    Raises:
        GitMissingError: `git` isn't there or doesn't start.
        PatchError: A patch doesn't apply, reads from outside of the package, or makes something else than a file.
    """
    git = shutil.which('git')
    if git is None:
        raise GitMissingError(
            'The fork is built by applying patches with `git`, but there is no `git` on the `PATH`. Install git, for '
            'example with `apt install git` or `brew install git`, and build again.'
        )
    for patch in patches:
        if faults := list(patch_faults(patch)):
            listed = '\n'.join(f'- {fault}' for fault in faults)
            raise PatchError(
                f'The patch `{patch.name}` takes more than files of the package:\n{listed}\nOnly files below `{PACKAGE_PATH}` '
                f'go into the fork. {_restore(patch.parent.name)}',
                patch,
                '',
            )
        # `--include` leaves out tests and docs, which the wheel doesn't ship. `--whitespace=nowarn` beats a user's setting.
        command = [git, 'apply', '--whitespace=nowarn', f'--include={PACKAGE_PATH}/*', str(patch.resolve())]
        done = subprocess.run(command, cwd=tree, env=_git_environment(tree), capture_output=True, check=False)
        if done.returncode:
            output = (done.stdout + done.stderr).decode(errors='replace').strip()
            line = patch.parent.name
            raise PatchError(
                f'The patch `{patch.name}` does not apply to {line} with the patches before it. {_restore(line)} git '
                f'said:\n{output}',
                patch,
                output,
            )


def patch_faults(patch: Path) -> Iterator[str]:
    """Say what in a patch reads from outside of the package, or makes something else than a file there.

    git looks where a patch writes to, not where it copies from. What a patch does outside of the package is left out of the
    fork, but a path that leads out of the tree is a fault everywhere.
    """
    text = patch.read_text('utf-8', 'surrogateescape')
    for part in re.split(r'^diff --git ', text, flags=re.MULTILINE)[1:]:
        header = re.split(r'^(?:@@ |GIT binary patch)', part, maxsplit=1, flags=re.MULTILINE)[0]
        sources, targets = (
            [_unquoted(name) for name in re.findall(rf'^(?:copy|rename) {which} (.+)$', header, re.MULTILINE)]
            for which in ('from', 'to')
        )
        inside = PACKAGE_PATH in header.partition('\n')[0] or any(_is_inside(name) for name in targets)
        for name in sources:
            path = PurePosixPath(name)
            if path.is_absolute() or '..' in path.parts:
                yield f'It reads {name!r}, which is outside of the tree.'
            elif inside and not _is_inside(name):
                yield f'It makes {", ".join(map(repr, targets))} of {name!r}, which is outside of the package.'
        for mode in re.findall(r'^(?:new file mode|new mode) (\d+)\s*$', header, re.MULTILINE) if inside else ():
            if not stat.S_ISREG(int(mode, 8)):
                yield f'It makes something else than a regular file, of mode {mode}: `{header.partition(chr(10))[0]}`.'


def _unquoted(name: str) -> str:
    """Return a path as git reads it, as far as it is ASCII: in quotes, a character can be an octal number."""
    name = name.rstrip('\r')
    if not (len(name) > 1 and name.startswith('"') and name.endswith('"')):
        return name
    return re.sub(r'\\([0-7]{3})', lambda octal: chr(int(octal[1], 8)), name[1:-1])


def _is_inside(name: str) -> bool:
    return name.startswith(f'{PACKAGE_PATH}/')


def _restore(line: str) -> str:
    """Say what to do about a wrong patch."""
    return (
        f'If `patches/{line}` was edited by hand, restore it with `git checkout -- patches/{line}`; if the patch is to '
        f'change, change its commit in the tree of `make apply LINE={line}` and run `make extract LINE={line}`. Then build '
        f'again.'
    )


def _git_environment(tree: Path) -> dict[str, str]:
    """Make an environment in which git sees no repository and no configuration.

    Inside a work tree `git apply` silently skips what lies outside of it, and settings such as `core.autocrlf` or
    `apply.whitespace` would change what it writes.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith('GIT_')}
    return environment | {
        # A repository that isn't there is the only one that git looks for then. A limit to its search would be a list of
        # folders with colons between them, in which one with a colon in its path can't stand.
        'GIT_DIR': str(tree.resolve() / 'no-repository'),
        'GIT_CONFIG_GLOBAL': os.devnull,
        'GIT_CONFIG_SYSTEM': os.devnull,
        'GIT_CONFIG_NOSYSTEM': '1',
        'GIT_ATTR_NOSYSTEM': '1',
        'HOME': str(tree.resolve()),  # git before 2.32 does not know `GIT_CONFIG_GLOBAL`
        'XDG_CONFIG_HOME': str(tree.resolve()),
        'LC_ALL': 'C',
    }


# The package that comes out


def check_package(line: PinnedLine, tree: Path) -> list[Path]:
    """Check that the package in a folder is what the line is pinned to, and give its files the same permissions everywhere.

    git can skip a patch, or a part of one, and say that all went well. So its word isn't taken for it.

    Args:
        line: The line.
        tree: As for `apply_patches()`, with the patches applied.

    Returns:
        The files of the package.

    Raises:
        ForkMismatchError: It is another package, or the line isn't pinned to one.
        FileNameError: As `digest_files()`.
    """
    pins, name = line.folder / 'line.toml', line.folder.name
    repin = f'`make apply LINE={name}` and `make extract LINE={name}`'
    if line.patched is None:
        raise ForkMismatchError(
            f'`{pins}` has no `patched`, the digest of the package with the patches, so nobody could tell whether they were '
            f'applied in full. Run {repin}, which write it, and build again.'
        )
    files = package_files(tree)
    digest = digest_files(files)
    if digest != line.patched:
        raise ForkMismatchError(
            f'The base with the patches is not the package that `{pins}` is pinned to:\n'
            f'expected {line.patched}\n'
            f'found    {digest}\n'
            f'Either the patches are not those that were pinned, or `{shutil.which("git")}` has not applied all of them. '
            f'Restore them with `git checkout -- patches/{name}` and build again; if they are meant to be others, run '
            f'{repin} first.'
        )
    paths = [tree / UPSTREAM_FOLDER / path for path in files]
    for path in paths:
        path.chmod(0o644)  # neither a umask nor a patch makes a difference
    return paths


def package_digest(tree: Path) -> str:
    """Compute the digest of the package in a folder with the layout of upstream's repository.

    Args:
        tree: As for `apply_patches()`.

    Returns:
        As `digest_files()`.

    Raises:
        ForkMismatchError: As `package_files()`.
        FileNameError: As `digest_files()`.
    """
    return digest_files(package_files(tree))


def package_files(tree: Path) -> dict[str, bytes]:
    """Read the package in a folder with the layout of upstream's repository.

    Args:
        tree: As for `apply_patches()`.

    Returns:
        The content of its files by their paths, which begin with `pydantic_ai/`.

    Raises:
        ForkMismatchError: Something in it is neither a folder nor a regular file; all of that is named.
    """
    folder = tree / UPSTREAM_FOLDER
    found: dict[str, bytes] = {}
    odd: list[str] = []
    for path in sorted((folder / PACKAGE).rglob('*')):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode):
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
        elif not stat.S_ISDIR(mode):
            odd.append(path.relative_to(tree).as_posix())
    if odd:
        raise ForkMismatchError(
            f'With the patches, the package has what is neither a folder nor a regular file: '
            f'{", ".join(f"`{name}`" for name in odd)}. Only regular files go into the fork. Find the patch that makes it, and '
            f'have it write a file.'
        )
    return found


# Digests


def digest_files(files: Mapping[str, bytes]) -> str:
    """Compute the digest of files.

    It is the SHA-256 of a listing as `sha256sum --zero` prints it: the digest of each file, two spaces, its path, and a zero
    byte, which no path can hold. So a path can't pass for the end of one entry and the next.

    Args:
        files: The content of the files by their paths, with slashes on every platform.

    Returns:
        The digest as `line.toml` holds it, with `sha256:` in front.

    Raises:
        FileNameError: The path of a file has a character that doesn't print, or a backslash; all such paths are named.
    """
    if odd := [name for name in files if not name.isprintable() or '\\' in name]:
        raise FileNameError(
            f'No release has files with such names: {", ".join(map(ascii, sorted(odd)))}. They can stand for other files '
            f'than they seem to. Find out which package brought them; if it is `{DIST_NAME}`, do not trust the package '
            f'index that it is from.'
        )
    listing = hashlib.sha256()
    for name, content in sorted(files.items()):
        listing.update(f'{hashlib.sha256(content).hexdigest()}  {name}\0'.encode())
    return f'sha256:{listing.hexdigest()}'
