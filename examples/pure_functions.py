"""Pure functions: a toolset of hashes, which has nothing to declare."""

from __future__ import annotations

import hashlib

from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.models import Model

from examples.support import call, run_main, script


# --8<-- [start:toolset]
def sha256(text: str) -> str:
    """Return the SHA-256 digest of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def md5(text: str) -> str:
    """Return the MD5 digest of a text, in hexadecimal."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


hashes = FunctionToolset([sha256, md5])
agent = Agent(toolsets=[hashes])
# --8<-- [end:toolset]

SCRIPT = script(call('sha256', text='pydantic'))


async def main(model: Model | str) -> None:
    """Ask for a digest twice."""
    for _ in range(2):
        result = await agent.run('What is the SHA-256 digest of "pydantic"?', model=model)
        print(result.output)


if __name__ == '__main__':
    run_main(main, SCRIPT)
