"""List new pages and public names where upstream's documentation lists all of them: no patch can edit those files."""

from __future__ import annotations

import ast
import json
import re
from itertools import takewhile
from pathlib import PurePosixPath

from pydantic_ai_slim.fork.names import PACKAGE_PATH, UPSTREAM_FOLDER
from series.git import Git

_SKILLS = f'{PACKAGE_PATH}/.agents/skills'
_CHANGED = ('-c', 'core.quotePath=false', 'diff', '--name-only', '--no-renames')


def list_additions(git: Git, target: str, commit: str) -> tuple[dict[str, str], list[str]]:
    """Return how the files that list pages and names are to read after what a branch adds.

    Args:
        git: The clone.
        target: The commit that the branch begins at.
        commit: The last one of the branch.

    Returns:
        The new contents by path, and what is left for the user, in full sentences.
    """
    changed: dict[str, str] = {}
    notes: list[str] = []
    added = git.lines(*_CHANGED, target, commit, '--diff-filter=A', '--', 'docs/*.md')
    # Upstream had the first on 1.x, and has the second today.
    index = 'mkdocs.yml' if _read(git, commit, 'mkdocs.yml') else 'docs/navigation.yml'
    for page in added:
        name = page.removeprefix('docs/')
        text = changed.get(index) or _read(git, commit, index)
        # The name of another page can end like this one's.
        if re.search(rf'(?<![\w./-]){re.escape(name)}(?!\w)', text):
            continue
        title = re.search(r'^# +(.+?) *$', _read(git, commit, page), re.MULTILINE)
        if listed := _listed_page(text, name, title[1] if title else PurePosixPath(page).stem):
            changed[index] = listed
        else:
            notes.append(f'Add `{page}` to the navigation in `{index}`, where no page has a name like it.')
    for module, names in _new_names(git, target, commit).items():
        path = f'docs/api/{module.partition(".")[2].replace(".", "/")}.md'
        text = _read(git, commit, path)
        if listed := _listed_names(text, module, names):
            changed[path] = listed
        elif f'::: {module}\n' not in f'{text}\n':
            notes.append(
                f'No page of the API has `{module}`; add {", ".join(f"`{name}`" for name in names)} to one of them.'
            )
    if added and git.lines('ls-tree', commit, _SKILLS) and not git.lines(*_CHANGED, target, commit, '--', _SKILLS):
        notes.append(f'Say what is new in the skill that agents read, in the file below `{_SKILLS}` for its topic.')
    return changed, notes


def _read(git: Git, commit: str, path: str) -> str:
    """Return the text of a file in a commit, or nothing if it isn't there."""
    return git.attempt('cat-file', 'blob', f'{commit}:{path}').stdout.decode('utf-8', 'replace')


def _listed_page(text: str, name: str, title: str) -> str | None:
    """Return the index with a page behind the one whose name begins most alike, or `None` if none does or it isn't a list."""
    quoted = json.dumps(title, ensure_ascii=False)
    new = '- page: {title}\n{indent}  path: "{name}"\n{indent}  slug: "{slug}"\n'
    entries = [
        (found[1], found['path'], found.start(), found.end(), found['slug'])
        for found in re.finditer(
            r'^( *)- page: .*\n\1  path: "(?P<path>.*)"\n\1  slug: "(?P<slug>.*)"\n(?:\1  .*\n)*', text, re.MULTILINE
        )
    ]
    if not entries:
        quoted = title if re.fullmatch(r"\w[\w ,'-]*", title) else quoted
        new = '- {title}: {name}\n'
        entries = [
            (found[1], found[2], found.start(), found.end(), '')
            for found in re.finditer(r'^( *)- (?:[^:\n]+: )?"?([\w/.-]+\.md)"?\n', text, re.MULTILINE)
        ]
    alike = [(_alike(entry[1], name), -entry[2], entry) for entry in entries]
    if not alike or max(alike)[0] < 4:
        return None
    indent, _, _, end, slug = max(alike)[2]
    page = new.format(
        title=quoted, name=name, indent=indent, slug=PurePosixPath(slug).parent / PurePosixPath(name).with_suffix('')
    )
    return f'{text[:end]}{indent}{page}{text[end:]}'


def module_of(path: str) -> str:
    """Return the name of the module that a file of upstream's repository is."""
    return re.sub(r'(/__init__)?\.py$', '', path.removeprefix(f'{UPSTREAM_FOLDER}/')).replace('/', '.')


def _alike(one: str, other: str) -> int:
    """Return with how many same characters two names begin."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


def _new_names(git: Git, target: str, commit: str) -> dict[str, list[str]]:
    """Return the names that a branch adds to `__all__` of modules below the package, by module."""
    found: dict[str, list[str]] = {}
    for path in git.lines(*_CHANGED, target, commit, '--', f'{PACKAGE_PATH}/*.py'):
        module = module_of(path)
        # The package itself has again what its modules have, and what begins with `_` is on no page.
        if '.' not in module or '._' in module:
            continue
        before, after = (_all(_read(git, revision, path)) for revision in (target, commit))
        if names := [name for name in after if name not in before]:
            found[module] = names
    return found


def _all(source: str) -> list[str]:
    """Return what `__all__` of a module says."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(one, ast.Name) and one.id == '__all__' for one in node.targets
        ):
            return list(ast.literal_eval(node.value))
    return []


def _listed_names(text: str, module: str, names: list[str]) -> str | None:
    """Return a page of the API with names at the end of a module's members, or `None` if nothing is to be added."""
    found = re.search(
        rf'^::: {re.escape(module)}\n +options:\n(?: +(?!members:|-).*\n)* +members:\n(?P<members>(?:(?P<indent> +)- .*(?:\n|\Z))+)',
        text,
        re.MULTILINE,
    )
    if not found:
        return None
    missing = [name for name in names if not re.search(rf'^ +- {re.escape(name)}$', found['members'], re.MULTILINE)]
    if not missing:
        return None
    at = found.end('members')
    new = ''.join(f'{found["indent"]}- {name}\n' for name in missing)
    return f'{text[:at].rstrip(chr(10))}\n{new}{text[at:]}'
