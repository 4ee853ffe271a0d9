"""Write the text of a pull request: what the patch's message says, as GitHub shows it, in upstream's own template."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from series.git import Git
from series.message import Message

_NAME = 'pull_request_template.md'
_FOLDERS = ('.github/', '', 'docs/')
"""Where GitHub looks for it, whatever its case."""


def upstream_template(git: Git, revisions: Iterable[str]) -> str:
    """Return the template of the first revision that has one, or nothing.

    Args:
        git: The clone.
        revisions: Where to look for it, the best place first.
    """
    for revision in revisions:
        for folder in _FOLDERS:
            names = git.attempt('ls-tree', '--name-only', revision, *([folder] if folder else []))
            for name in names.stdout.decode('utf-8', 'replace').splitlines():
                if name.lower() == f'{folder}{_NAME}':
                    return git.run('cat-file', 'blob', f'{revision}:{name}').replace('\r\n', '\n')
    return ''


def pull_request_text(message: Message, needed: Sequence[Message], template: str) -> str:
    """Return the title, an empty line, and the body of a pull request.

    Args:
        message: What the patch says.
        needed: What those say that the branch holds below it.
        template: Upstream's template. What it says of issues to be closed is filled in if the patch closes any.
    """
    parts = [unwrap(message.text)]
    if needed:
        listed = '\n'.join(f'- {other.subject}{_submitted(other)}' for other in needed)
        parts.append(f'This stands on, and the branch begins with:\n\n{listed}')
    if bugs := message.values('Bug'):
        parts.append(f'See {", ".join(map(_issue, bugs))}.')
    said = '\n\n'.join(parts)
    closes = [f'Closes {_issue(url)}' for url in message.values('Closes')]
    placeholder = re.compile(r'^((?:[-*] )?)(?:Closes|Fixes) #\D.*$', re.MULTILINE | re.IGNORECASE)
    if closes and placeholder.search(template):
        template = placeholder.sub(lambda found: '\n'.join(f'{found[1]}{line}' for line in closes), template, count=1)
    elif closes:
        said = '\n'.join(closes) + f'\n\n{said}'
    # Upstream's checklist is below a heading, and comes last.
    heading = re.search(r'^#', template, re.MULTILINE)
    at = heading.start() if heading else len(template)
    body = '\n\n'.join(part.strip() for part in (template[:at], said, template[at:]) if part.strip())
    return f'{message.subject}\n\n{body}\n'


def unwrap(text: str) -> str:
    """Put each paragraph and each item of a list on one line, since GitHub breaks lines in a pull request where they end."""
    lines: list[str] = []
    fenced, open_ = False, False
    for line in text.splitlines():
        fence = line.lstrip().startswith('```')
        indented = line.startswith('    ') and not open_
        if fenced or fence or indented or not line.strip():
            lines.append(line)
            fenced ^= fence
            open_ = False
        elif open_ and not re.match(r'\s*(?:[-*+]|\d+[.)]|#+|>|\|) ', line):
            lines[-1] += f' {line.strip()}'
        else:
            lines.append(line)
            open_ = True
    return '\n'.join(lines)


def _issue(url: str) -> str:
    issue = re.fullmatch(r'https://github\.com/pydantic/pydantic-ai/(?:issues|pull)/(\d+)', url)
    return f'#{issue[1]}' if issue else url


def _submitted(message: Message) -> str:
    forwarded = ''.join(message.values('Forwarded'))
    return f' ({forwarded})' if forwarded.startswith('https://') else ''
