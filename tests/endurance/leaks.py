"""What this process holds, to compare before and after."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter

import psutil


async def held() -> Counter[str]:
    """Count what this process holds, after what is on its way out has gone.

    Returns:
        How much of each there is: blocks of memory, of which each object takes at least one, tasks of this event loop, file
        descriptors, processes that it has started, and connections.
    """
    for _ in range(50):
        await asyncio.sleep(0)
    for _ in range(3):  # what a finalizer lets go of is found by the next
        gc.collect()
    process = psutil.Process()
    return Counter(
        objects=sys.getallocatedblocks(),
        kilobytes=process.memory_info().rss // 1024,
        tasks=len(asyncio.all_tasks()),
        descriptors=process.num_fds(),
        processes=len(process.children(recursive=True)),
        connections=len(process.net_connections()),
    )


def kept(before: Counter[str], after: Counter[str]) -> Counter[str]:
    """Say how much more there is afterwards."""
    return Counter({name: after[name] - before[name] for name in before})
