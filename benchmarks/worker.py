"""Measure what is asked for on the standard input, in the environment that this runs in: `python worker.py MODULE`.

One process measures all rounds of a workload, in turn with that of the other side, so that both see the same moods of the machine.
The seconds are those of the processor: nothing that is measured waits, and what else the machine does is not counted.
"""

from __future__ import annotations

import asyncio
import json
import sys
from importlib import import_module
from time import process_time
from typing import Any


def main() -> None:
    """Answer each line, a JSON object, with another."""
    module: Any = import_module(sys.argv[1])
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    calls: dict[tuple[str, int], Any] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        name, size = asked['workload'], asked['size']
        if name == 'memory':
            answer = [loop.run_until_complete(module.memory(size))]
        else:
            if (name, size) not in calls:
                calls.clear()  # what is alive weighs on the garbage collector
                calls[name, size] = module.WORKLOADS[name](size)
            answer = loop.run_until_complete(module.measure(calls[name, size], asked['seconds'], process_time))
        print(json.dumps(answer), flush=True)
    loop.close()


if __name__ == '__main__':
    main()
