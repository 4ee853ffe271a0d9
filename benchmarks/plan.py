"""Which workloads are measured, of which sizes, and on which sides."""

from __future__ import annotations

from dataclasses import dataclass

MEMORY = 'memory'
BOTH = ('base', 'fork')
FORK = ('fork',)


@dataclass(frozen=True)
class Point:
    """A workload of a size."""

    workload: str
    size: int
    sides: tuple[str, ...] = BOTH
    operations: int = 1
    """How many operations a call is."""
    patience: float = 90
    """After how many seconds no third or later round is begun."""


TOOLS = tuple(
    tuple(
        Point(workload, size, sides)
        for workload, sides in (
            ('run', BOTH),
            ('deps', BOTH),
            ('copy', FORK),
            ('scope', FORK),
            ('copy with tools', FORK),
            ('factory', BOTH),
            ('new agent', BOTH),
            ('build', BOTH),
        )
    )
    for size in (15, 150)
)
LIVE = ((Point(MEMORY, 1_000, patience=0),),)
GROWTH = (
    *((Point('run', size),) for size in (1, 10, 100, 1_000)),
    *((Point('toolsets', size),) for size in (1, 10, 100, 1_000)),
    (Point('wrappers', 40),),
    *((Point('history', size),) for size in (1, 10, 100, 1_000)),
    tuple(Point('concurrent', size, operations=size) for size in (1, 10, 100, 1_000, 5_000)),
)
PLANS = {'tools': TOOLS, 'memory': LIVE, 'growth': GROWTH}
"""The parts of the plan. What stands together is measured in turn, so that it can be compared."""
PEER_NAMES = 'adk', 'agno', 'langgraph', 'openai-agents', 'smolagents', 'strands'
PEERS = tuple((Point('run', size, FORK), *(Point(name, size, ('peers',)) for name in PEER_NAMES)) for size in (15, 150))
"""The same run on the fork and in other frameworks, which are an extra."""
