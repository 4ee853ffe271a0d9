"""A cache: each query is searched for once per run, and sub-agents share what the run has found."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, FunctionToolset, RunContext, ToolCallPart
from pydantic_ai.models import Model
from typing_extensions import Self

from examples.support import call, run_main, scripts


# --8<-- [start:toolset]
class CachedSearchToolset(FunctionToolset[Any]):
    """Searches, and remembers what was found until the run ends. Sub-agents share it, as they do by default."""

    stateful = True

    def __init__(self, find: Callable[[str], Coroutine[Any, Any, str]]) -> None:
        """Make a toolset with an empty cache.

        Args:
            find: What searches. It gets the query, and can run for several queries at once.
        """
        super().__init__([self.search])
        self.find = find
        self.searches: dict[str, asyncio.Task[str]] = {}

    def copy(self) -> Self:
        """Pass the search on, and leave what was found behind."""
        return type(self)(self.find)

    async def __aexit__(self, *args: object) -> None:
        """End the searches that nobody waits for any more."""
        searches = list(self.searches.values())
        for search in searches:
            search.cancel()
        await asyncio.gather(*searches, return_exceptions=True)

    async def search(self, query: str) -> str:
        """Search for a word or phrase."""
        # The search itself is kept, so that a second call can also wait for one that isn't done.
        if query not in self.searches:
            self.searches[query] = asyncio.create_task(self._find(query))
        # A call that is cancelled must not cancel the search of the others.
        return await asyncio.shield(self.searches[query])

    async def _find(self, query: str) -> str:
        try:
            return await self.find(query)
        except BaseException:
            # The next call tries again.
            del self.searches[query]
            raise


# --8<-- [end:toolset]

# --8<-- [start:agents]
CHAPTERS = Path(__file__).parents[1] / 'docs' / 'cookbook'


async def search_chapters(query: str) -> str:
    """Find the chapters of this cookbook whose first paragraph contains a text."""

    def find() -> list[str]:
        texts = {path.stem: path.read_text('utf-8') for path in sorted(CHAPTERS.glob('*.md'))}
        return [name for name, text in texts.items() if query in text.split('\n\n')[1]]

    print(f'Searching for {query!r}')
    return ', '.join(await asyncio.to_thread(find)) or 'nothing'


search = CachedSearchToolset(search_chapters)
researcher = Agent('openai:gpt-5-mini', name='researcher', toolsets=[search], defer_model_check=True)
agent = Agent('openai:gpt-5-mini', name='agent', toolsets=[search], defer_model_check=True)


@agent.tool
async def ask_researcher(ctx: RunContext[Any], question: str) -> str:
    """Let the researcher answer a question."""
    result = await researcher.run(question, usage=ctx.usage)
    return result.output


# --8<-- [end:agents]

QUESTION = 'Which chapter is about payments?'
DELEGATED = 'Which chapter is it?'


def search_again() -> ToolCallPart:
    """Make one more call of the search, with the same query."""
    return call('search', query='payment')


SCRIPT = scripts(
    {
        QUESTION: [[search_again(), search_again()], call('ask_researcher', question=DELEGATED)],
        DELEGATED: [search_again()],
    }
)


async def main(model: Model | str) -> None:
    """Ask the same question in two runs."""
    with agent.override(model=model), researcher.override(model=model):
        for run in (1, 2):
            print(f'Run {run}')
            result = await agent.run(QUESTION)
            print(result.output)


if __name__ == '__main__':
    run_main(main, SCRIPT)
