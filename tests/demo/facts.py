"""What `demo/scenarios.py` prints, in small."""

from __future__ import annotations

import json
from typing import Any


def environment_facts(**changes: Any) -> dict[str, Any]:
    return {'version': '1.0', 'python': '3.12.1', 'model': None, 'scenarios': 2, **changes}


def run_facts(**changes: Any) -> dict[str, Any]:
    call = ['search', {'query': 'fish'}]
    facts: dict[str, Any] = {'user': 'Bob', 'did': 'Bob searches.', 'fails': None, 'asked': [call], 'called': [call]}
    return {**facts, 'saw': ['found fish'], 'error': None, 'committed': None, 'alone': None, **changes}


def count_facts(second: str) -> dict[str, Any]:
    """Return a scenario whose second run saw that, and on its own sees `first search`."""
    alone = {'called': run_facts()['called'], 'saw': ['first search'], 'error': None}
    runs = [run_facts(user='Alice', did='Alice searches.', saw=['first search']), run_facts(saw=[second], alone=alone)]
    return {'key': 'count', 'title': 'A toolset counts.', 'runs': runs}


def order_facts(*committed: str) -> dict[str, Any]:
    """Return a scenario whose first run failed and committed that; the second one succeeded."""
    asked = [['add_item', {'item': 'lamp'}], ['add_item', {'item': 'desk'}]]
    failed = run_facts(
        did='Alice orders.', asked=asked, called=asked, saw=['lamp added'], fails='tool', error='SoldOutError: no desk'
    )
    runs = [
        {**failed, 'committed': list(committed)},
        run_facts(
            did='Carol orders.', asked=asked, called=asked, saw=['lamp added', 'desk added'], committed=['lamp', 'desk']
        ),
    ]
    return {'key': 'transaction', 'title': 'A toolset holds a transaction.', 'runs': runs}


def lines(*facts: dict[str, Any]) -> str:
    return ''.join(f'{json.dumps(each)}\n' for each in facts)


def printing(*facts: dict[str, Any], then: str = '') -> str:
    """Return the text of a script that prints facts as `demo/scenarios.py` does."""
    return f'print({lines(*facts)!r}, end="", flush=True)\n{then}'
