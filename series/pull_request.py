"""Write the text of a pull request: what the patch's message says, as GitHub shows it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from series.message import Message


def pull_request_text(message: Message, needed: Sequence[Message]) -> str:
    """Return the title, an empty line, and what goes above the checklist of upstream's template.

    Args:
        message: What the patch says.
        needed: What those say that the branch holds below it.
    """
    parts = [
        message.subject,
        '\n'.join(f'Closes {_issue(url)}' for url in message.values('Closes')),
        unwrap(message.text),
    ]
    if needed:
        listed = '\n'.join(f'- {other.subject}{_submitted(other)}' for other in needed)
        parts.append(f'This stands on, and the branch begins with:\n\n{listed}')
    if bugs := message.values('Bug'):
        parts.append(f'See {", ".join(map(_issue, bugs))}.')
    return '\n\n'.join(filter(None, parts)) + '\n'


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
