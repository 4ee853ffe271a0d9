"""Add to the site what isn't in `docs/`: the changelog, the API, and the references to it in the pages that the series adds.

mkdocs calls the functions named `on_…`. What they show was got by `docs/prepare.py`.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from glob import escape
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any, cast

import griffe
from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority, get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from mkdocs_autorefs import AutorefsPlugin

log = get_plugin_logger('docs')

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / 'build' / 'docs'
LINE = max(
    (path.parent.name for path in (ROOT / 'patches').glob('*/line.toml')),
    key=lambda name: [int(part) for part in re.findall(r'\d+', name)],
)
"""The newest line, whose pages and API the site shows."""

API = 'api/index.md'
"""The list of the API. Each topic has a page beside it, from which docstrings are as far from other pages as on upstream's site."""

TOPICS = {
    'toolsets': ('Toolsets', {'exceptions', 'toolsets'}),
    'runs': ('Runs', {'agent', 'result', 'tool_manager', 'tools'}),
    'capabilities': ('Capabilities', {'capabilities'}),
    'durable': ('Durable execution', {'durable_exec'}),
}
"""The pages of the API: the title of each, and the modules of `pydantic_ai` that it documents."""

TREE = ROOT / 'build' / LINE
BASE = SOURCES / LINE / 'base'

UPSTREAM = 'https://pydantic.dev/docs/ai'
GRAPH = {'pydantic_graph.basenode.End': 'nodes', 'pydantic_graph.nodes.End': 'nodes'}
"""What docstrings refer to of upstream's other package, and the page of its API."""

MISNAMED = {'pydantic_ai.output.DeferredToolRequests': 'pydantic_ai.tools.DeferredToolRequests'}
"""What the base's docstrings refer to by a name that isn't exported, and what they mean."""

UPSTREAM_PAGES = {
    *(
        'agent',
        'agents',
        'builtin-tools',
        'common-tools',
        'deferred-tools',
        'dependencies',
        'direct',
        'logfire',
        'message-history',
    ),
    *(
        'multi-agent-applications',
        'output',
        'retries',
        'testing',
        'third-party-tools',
        'tools',
        'tools-advanced',
        'toolsets',
    ),
    *(
        'durable_execution/overview',
        'durable_execution/dbos',
        'durable_execution/prefect',
        'durable_execution/temporal',
    ),
    *('mcp/client', 'mcp/fastmcp-client', 'mcp/overview', 'mcp/server'),
    *('capabilities/overview', 'realtime/overview', 'ui/overview'),
}
"""What upstream's pages link to, and ours don't have. A link to any other page is taken for a mistake."""

MOVED = {'durable_execution/': 'capabilities/durable_execution/'}
"""Where pages are on upstream's site whose files are elsewhere. It redirects from the names of all other files, old and new."""

UPSTREAM_API = {
    *(
        'ag_ui',
        'agent',
        'builtin_tools',
        'capabilities',
        'common_tools',
        'direct',
        'durable_exec',
        'exceptions',
        'ext',
        'format_prompt',
        'mcp',
    ),
    *(
        'messages',
        'output',
        'profiles',
        'providers',
        'result',
        'retries',
        'run',
        'settings',
        'tools',
        'toolsets',
        'usage',
    ),
}
"""The modules of `pydantic_ai` that have a page of that name in upstream's API documentation."""

FIRST = [
    f'pydantic_ai.{name}'
    for name in (
        'toolsets.AbstractToolset',
        'toolsets.ToolsetScope',
        'toolsets.ToolsetScopePool',
        'toolsets.describe_lifecycle',
        'tools.RunContext',
        'tools.DeferredToolHandler',
        'agent.AgentRun',
        'agent.AgentRunResult',
    )
]
"""What people use most, with which the list of the API begins."""

MESSAGE = re.compile(r'^\| (?!---|The message)(.+?) \| (.+) \|$', re.MULTILINE)
"""A row of the page of errors and warnings."""

_messages: list[tuple[str, str]] = []
"""The rows that the page had when it was read."""

BOOST = 3
"""How much more a message counts in the search than a heading that has the same words."""

QUIET = 4
"""For how many seconds the build says nothing of where it is."""

NEW_PARAMETERS = '| Class | Methods | New parameter |\n| --- | --- | --- |\n'

OPTIONS: dict[str, Any] = {
    'allow_inspection': False,
    'heading_level': 2,
    'members_order': 'source',
    'separate_signature': True,
    'show_bases': False,
    'show_root_heading': True,
    'show_root_full_path': False,
    'show_signature_annotations': True,
    'show_source': False,
    'show_symbol_type_heading': True,
    'show_symbol_type_toc': True,
    'signature_crossrefs': True,
}
"""How mkdocstrings renders an object of the API."""


@event_priority(100)  # before mkdocstrings reads its settings
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Have mkdocstrings read the source of the tree."""
    for needed in (TREE / 'pydantic_ai_slim', BASE):
        if not needed.is_dir():
            raise PluginError(
                f'There is no tree of {LINE}, which the site shows parts of. Build the site with `make docs`.'
            )
    config.markdown_extensions.append(UpstreamLinks())  # pyright: ignore[reportArgumentType]
    mkdocstrings = cast('Any', config.plugins)['mkdocstrings']
    mkdocstrings.config.handlers['python'] = {'paths': [escape(str(TREE / 'pydantic_ai_slim'))], 'options': OPTIONS}
    config.watch.append(str(TREE / 'docs'))
    config.repo_url = config.repo_url or repository()
    return config


def repository() -> str | None:
    """Return the address of this repository in a browser, if git knows one."""
    done = subprocess.run(['git', 'remote', 'get-url', 'origin'], cwd=ROOT, capture_output=True, text=True, check=False)
    found = re.match(r'(?:https://(?:[^@/]+@)?|(?:ssh://)?git@)([\w.-]+)[:/](.+?)(?:\.git)?$', done.stdout.strip())
    return f'https://{found[1]}/{found[2]}' if found else None


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, and what draws diagrams."""
    autorefs: AutorefsPlugin = cast('Any', config.plugins)['autorefs']
    files.append(File.generated(config, 'changelog.md', abs_src_path=str(ROOT / 'CHANGELOG.md')))
    script = 'assets/mermaid.tiny.js'
    files.append(File.generated(config, script, abs_src_path=str(SOURCES / Path(script).name)))
    log.info('Reading the API')
    base, fork = read_apis()
    # In place of the same pages for readers without the site, which has references to the API
    pages = {page.name: retitle(page.read_text('utf-8')) for page in find_pages()} | api_pages(base, fork)
    for name, content in pages.items():
        if plain := files.get_file_from_path(name):
            files.remove(plain)
        files.append(File.generated(config, name, content=content))
    for paths in base.paths.values():
        if url := _upstream_url(_preferred(paths)):
            for path in paths:
                autorefs.register_url(path, url)
    for path, meant in MISNAMED.items():
        if url := _upstream_url(meant):
            autorefs.register_url(path, url)
    for path, page in GRAPH.items():
        autorefs.register_url(path, f'{UPSTREAM}/api/pydantic_graph/{page}/#{path}')
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Name what proves the contract, and the rows of messages."""
    say_where(page)
    if page.file.src_uri == 'errors.md':
        _messages[:] = MESSAGE.findall(markdown)
        numbers = count(1)
        return MESSAGE.sub(lambda row: f'| <span id="message-{next(numbers)}"></span>{row[0][2:]}', markdown)
    # Pygments takes what follows no prompt for output, and shows all of it in grey.
    markdown = re.sub(r'^( *)```console$', r'\1```bash', markdown, flags=re.MULTILINE)
    markdown = markdown.replace('](../CHANGELOG.md', '](changelog.md')  # which the site has among its pages
    if page.file.src_uri == 'changelog.md':
        return markdown.replace('](docs/', '](')
    return contract_page(markdown) if page.file.src_uri == 'contract.md' else markdown


@event_priority(-100)  # after the search has written what it found in the pages
def on_post_build(config: MkDocsConfig) -> None:
    """Have the search find the row of a message first, as a page of its own whose title is the message."""
    index = Path(config.site_dir, 'search', 'search_index.json')
    found = json.loads(index.read_text('utf-8'))
    for number, row in enumerate(_messages, 1):
        message, text = (re.sub(r'[`…]| \|', '', part).strip() for part in row)
        found['docs'].append({'location': f'errors/#message-{number}', 'title': message, 'text': text, 'boost': BOOST})
    index.write_text(json.dumps(found), 'utf-8')


def on_page_context(context: Any, page: Page, config: MkDocsConfig, nav: Navigation) -> None:
    """Say where the build is, while pages are written."""
    say_where(page)


_said = monotonic()


def say_where(page: Page) -> None:
    """Say which page is being built, if nothing was said for a while: all of them take half a minute."""
    global _said
    if monotonic() - _said > QUIET:
        log.info(f"Building '{page.file.src_uri}'")
        _said = monotonic()


class UpstreamLinks(Extension):
    """Turns links to pages that only upstream has into links to upstream, in pages as in docstrings."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: D102
        # When code blocks are out of the way, and links are still text
        md.preprocessors.register(_UpstreamLinksPreprocessor(md), 'upstream-links', 5)


class _UpstreamLinksPreprocessor(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        return [link_upstream(line) for line in lines]


def link_upstream(line: str) -> str:
    """Return a line of Markdown whose links to pages that only upstream has lead to upstream's site."""
    return re.sub(r'\]\((?:\.\./)*([\w/-]+)\.md(#[\w-]+)?\)', _link_upstream, line)


def _link_upstream(link: re.Match[str]) -> str:
    name, anchor = link.groups('')
    if name not in UPSTREAM_PAGES:
        return link[0]
    for before, after in MOVED.items():
        name = re.sub(f'^{before}', after, name)
    return f']({UPSTREAM}/{name}/{anchor})'


def contract_page(markdown: str) -> str:
    """Put the files that prove a point of the contract, which are found by their names, into its row."""

    def row(found: re.Match[str]) -> str:
        tests = sorted((ROOT / 'tests' / 'fork').rglob(f'test_b{int(found[1]):02}_*.py'))
        return f'{found[0][:-2]}<br>{"<br>".join(f"`{test.name}`" for test in tests)} |'

    return re.sub(r'^\| B(\d+) \|.*\|$', row, markdown, flags=re.MULTILINE)


def api_pages(base: Api, fork: Api) -> dict[str, str]:
    """Write the pages of what the series adds to the public API: the list of it, and one for each topic."""
    pages = {API: list_api(base, fork)}
    for name, (title, modules) in TOPICS.items():
        parts = [f'# {title}']
        for path, members in added(base, fork):
            if path.split('.')[1] in modules:
                # The rest of a class that the base has is upstream's to document.
                parts.append(f'::: {path}' + (f'\n    options:\n      members: {members}' if members else ''))
        pages[f'api/{name}.md'] = '\n\n'.join(parts) + '\n'
    return pages


def list_api(base: Api, fork: Api) -> str:
    """Write the list of what the series adds to the public API, each name with the first sentence of its docs."""
    parts = [
        '# API',
        f"What the series adds to the public API of pydantic-ai {LINE}; all else is as in [upstream's API]({UPSTREAM}/api/agent/). "  # noqa: ISC004
        'On the site, which `make docs` builds, each name leads to its documentation.',
        '| Name | What it is |\n| --- | --- |',
    ]
    for path, members in added(base, fork):
        for one in [f'{path}.{member}' for member in members] or [path]:
            found = fork.find(one)
            name = one.removeprefix('pydantic_ai.') + ('()' if found.is_function else '')
            parts[-1] += f'\n| [`{name}`][{one}] | {_first_sentence(found)} |'
    if changed := list(new_parameters(base, fork)):
        parts += ['## New parameters', NEW_PARAMETERS + '\n'.join(changed)]
    return '\n\n'.join(parts)


def _first_sentence(found: griffe.Object) -> str:
    text = found.docstring.value if found.docstring else ''
    return (
        re.split(r'(?<=[.:])\s', ' '.join(text.split('\n\n')[0].split()))[0]
        .rstrip(':')
        .removesuffix('.')
        .replace('|', r'\|')
        + '.'
    )


def added(base: Api, fork: Api) -> list[tuple[str, list[str]]]:
    """Return the path of each object of the public API that the base hasn't, what people use first.

    Of a class that the base has, it is the class, with the names of the members that are new.
    """
    new = {name for name in fork.paths.keys() - base.paths.keys() if _is_documented(fork.objects[name])}
    members: defaultdict[str, list[str]] = defaultdict(list)
    for name in new:
        parent, _, member = name.rpartition('.')
        if parent in base.paths and fork.objects[parent].is_class:
            members[parent].append(member)
    whole = {name for name in new if name.rpartition('.')[0] not in new and name.rpartition('.')[0] not in members}
    found = [(_preferred(fork.paths[name]), _as_written(fork, name, members[name])) for name in whole | members.keys()]
    return sorted(found, key=_rank)


def _is_documented(found: griffe.Object) -> bool:
    """Whether an object has an entry of its own. What a module defines has one each, by the names that people import."""
    return found.has_docstring and not found.is_module


def _as_written(api: Api, owner: str, members: list[str]) -> list[str]:
    """Return the names of members in the order of the source, which begins with what is declared."""
    return sorted(members, key=lambda member: (api.objects[f'{owner}.{member}'].lineno or 0, member))


def _rank(each: tuple[str, list[str]]) -> tuple[int, str]:
    path, _ = each
    if path in FIRST:
        return FIRST.index(path), path
    return len(FIRST) + (not path.startswith('pydantic_ai.toolsets.')), path


def read_apis() -> tuple[Api, Api]:
    """Read the public APIs of base and fork."""
    return Api(BASE / 'pydantic_ai_slim'), Api(TREE / 'pydantic_ai_slim')


def new_parameters(base: Api, fork: Api) -> Iterator[str]:
    """Yield a row of a table for each class whose methods take more than on the base."""
    rows: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name in sorted(base.paths.keys() & fork.paths.keys(), key=lambda name: _preferred(fork.paths[name])):
        before, after = base.objects[name], fork.objects[name]
        if isinstance(before, griffe.Function) and isinstance(after, griffe.Function):
            known = {parameter.name for parameter in before.parameters}
            owner, _, method = _preferred(fork.paths[name]).rpartition('.')
            for parameter in after.parameters:
                if parameter.name not in known:
                    rows[owner, parameter.name].append(f'[`{method}`][{owner}.{method}]')
    for (owner, parameter), methods in rows.items():
        yield f'| `{owner.removeprefix("pydantic_ai.")}` | {", ".join(methods)} | `{parameter}` |'


class Api:
    """The public API of a `pydantic_ai`, which is read and not run: its objects, and the paths by which each is known."""

    def __init__(self, folder: Path) -> None:
        self.objects: dict[str, griffe.Object] = {}
        self.paths: defaultdict[str, list[str]] = defaultdict(list)
        loader = griffe.GriffeLoader(search_paths=[folder], allow_inspection=False)
        package = loader.load('pydantic_ai')
        loader.resolve_aliases(implicit=False, external=False)
        assert isinstance(package, griffe.Module)
        self._collect(package, package.path)

    def find(self, path: str) -> griffe.Object:
        """Return the object that is known by a path."""
        return next(self.objects[name] for name, paths in self.paths.items() if path in paths)

    def _collect(self, owner: griffe.Object, path: str) -> None:
        for name, member in owner.members.items():
            if name.startswith('_'):
                continue
            try:
                found = member.final_target if isinstance(member, griffe.Alias) else member
            except griffe.AliasResolutionError:
                continue
            if member.is_alias and (found.is_module or name not in (owner.exports or ())):
                continue  # what a module imports for itself
            self.objects[found.path] = found
            self.paths[found.path].append(f'{path}.{name}')
            if found.is_module or found.is_class:
                self._collect(found, f'{path}.{name}')


def _preferred(paths: list[str]) -> str:
    """Return the path that upstream documents an object by: the shortest that names a module of the package."""
    return min(paths, key=lambda path: (path.split('.')[1] not in UPSTREAM_API, path.count('.'), path))


def _upstream_url(preferred: str) -> str | None:
    """Return where upstream documents an object, or `None` where it doesn't."""
    module, *rest = preferred.split('.')[1:]
    if module in UPSTREAM_API and rest:
        return f'{UPSTREAM}/api/{module}/#{preferred}'
    if module in ('models', 'ui') and rest:
        page = rest[0] if len(rest) > 1 and rest[0].islower() else 'base'
        return f'{UPSTREAM}/api/{module}/{page}/#{preferred}'
    return None


def retitle(text: str) -> str:
    """Return a page with its title as the titles of this repository are: upstream begins each word with a capital."""
    return re.sub(r'\A# (.)(.*)', lambda title: f'# {title[1]}{title[2].lower()}', text)


def find_pages() -> list[Path]:
    """Return the pages that the patches add."""
    return sorted((TREE / 'docs').glob('*.md'))
