"""A process that replays a history of Temporal: `python -m replay_worker MODULE WAY FILE`."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from pathlib import Path

from pydantic_ai.durable_exec.temporal import PydanticAIPlugin
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer


async def main(module: str, way: str, path: str) -> None:
    """Fail if the history isn't what the workflow does today."""
    options = importlib.import_module(module).for_worker(way)
    replayer = Replayer(workflows=options['workflows'], plugins=[PydanticAIPlugin(), *options['plugins']])
    await replayer.replay_workflow(WorkflowHistory.from_json(way, Path(path).read_text()))


if __name__ == '__main__':
    asyncio.run(main(*sys.argv[1:]))
    # The threads of Temporal's client can crash an interpreter that ends, and the history has been replayed
    sys.stdout.flush()
    os._exit(0)
