"""Call workloads between marks that valgrind sees: `python counted.py WORKLOAD:SIZE:CALLS…`, run by `callgrind`.

`callgrind` writes what it has counted whenever the C function `getppid` is entered, which nothing else here calls. So what is counted
between the two marks of a workload is that workload alone, without the imports and without what makes it ready.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from importlib import import_module
from typing import Any

WARM_UP = 3
"""How many calls come before the first mark, since the first ones fill caches."""


async def _call(call: Any, calls: int) -> None:
    for _ in range(calls):
        await call()


def main() -> None:
    """Call each workload that is asked for, with a mark before and after it."""
    module: Any = import_module('workloads')
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    for asked in sys.argv[1:]:
        name, size, calls = asked.split(':')
        call = module.WORKLOADS[name](int(size))
        loop.run_until_complete(_call(call, WARM_UP))
        gc.collect()
        os.getppid()
        loop.run_until_complete(_call(call, int(calls)))
        os.getppid()
        del call
    loop.close()


if __name__ == '__main__':
    main()
