"""A browser: each run drives a Chromium of its own, and a sub-agent has a page of its own in it."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
from playwright.async_api import BrowserContext, Error, Page, async_playwright
from pydantic_ai import Agent, FunctionToolset, ModelRetry, RunContext, toolsets
from pydantic_ai.models import Model
from typing_extensions import Self

from examples.support import call, run_main, scripts


# --8<-- [start:toolset]
class BrowserToolset(FunctionToolset[Any]):
    """Drives a page of a Chromium that is started for the run, and closed with it.

    A sub-agent has a page of its own in the same browser, with the same cookies. It starts where its parent is then.
    """

    stateful = True

    def __init__(self, executable_path: str | None = None, *, page_timeout: float = 10) -> None:
        """Make a toolset whose browser isn't started yet.

        Args:
            executable_path: The Chromium to start. If left out, the one that `find_chromium()` finds.
            page_timeout: The seconds that a tool waits for the page, to load or to show an element.
        """
        super().__init__([self.navigate, self.text, self.click])
        self.executable_path = executable_path
        self.page_timeout = page_timeout
        self._context: BrowserContext | None = None
        self._url: str | None = None
        self._page: Page | None = None
        self._lock = asyncio.Lock()
        self._closing = AsyncExitStack()

    def copy(self) -> Self:
        """Make a toolset that starts a browser of its own."""
        return type(self)(self.executable_path, page_timeout=self.page_timeout)

    def for_sub_agent(self, ctx: RunContext[Any]) -> Self:
        """Make a toolset that opens a page of its own in this browser, at the URL where this one is now."""
        child = self.copy()
        child._context = self.page.context
        child._url = self.page.url
        return child

    @property
    def page(self) -> Page:
        """The page that the tools drive.

        Raises:
            RuntimeError: The toolset isn't entered. Runs enter their own copy of it.
        """
        if self._page is None:
            raise RuntimeError(
                f'{self.label} has no page yet: enter it with `async with`, as a run does with its copy.'
            )
        return self._page

    async def __aenter__(self) -> Self:
        """Open the page, and the browser if it isn't a sub-agent's.

        Raises:
            RuntimeError: Chromium isn't installed, or doesn't start.
            Error: The page where a sub-agent is to start can't be opened.
        """
        try:
            await _finish(self._open())
        except BaseException:
            await _finish(self._closing.aclose())
            raise
        return self

    async def __aexit__(self, *args: object) -> None:
        """Close what was opened."""
        await _finish(self._closing.aclose())

    async def _open(self) -> None:
        context = self._context or await self._start_browser()
        self._page = page = await context.new_page()
        if self._context:
            self._closing.push_async_callback(self._close_page, page)
        page.set_default_timeout(self.page_timeout * 1000)
        # There is nothing to go to if the parent's page has opened nothing, or failed to.
        if self._url and not self._url.startswith(('about:', 'chrome-error:')):
            await page.goto(self._url)

    async def _close_page(self, page: Page) -> None:
        # Chromium may never answer while it shows that a page can't be opened. The page is then closed with the browser.
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(page.close(), self.page_timeout)

    async def _start_browser(self) -> BrowserContext:
        playwright = await self._closing.enter_async_context(async_playwright())
        try:
            browser = await playwright.chromium.launch(executable_path=self.executable_path or find_chromium())
        except Error as error:
            raise RuntimeError(
                f'Chromium does not start: {error.message.splitlines()[0]}. Install it, on Debian with `apt-get install chromium`, '
                'elsewhere with `playwright install chromium`, or name one with `BrowserToolset(executable_path=...)`.'
            ) from error
        self._closing.push_async_callback(browser.close)
        return await browser.new_context()

    @asynccontextmanager
    async def _drive(self) -> AsyncGenerator[Page]:
        # The calls of one response run in parallel, but a page is at one URL at a time.
        async with self._lock:
            try:
                yield self.page
            except Error as error:
                # Another selector or URL may do, but not if the browser itself is gone.
                if self.page.is_closed():
                    raise
                raise ModelRetry(error.message) from error

    async def navigate(self, url: str) -> str:
        """Open a page, and return its title."""
        async with self._drive() as page:
            try:
                await page.goto(url)
            except Error:
                # Chromium's own page about the error comes a moment later, and would interrupt what is done next.
                with suppress(Error):
                    await page.wait_for_event('load', timeout=1000)
                raise
            return await page.title()

    async def text(self, selector: str) -> str:
        """Return the visible text of the first element that matches a CSS selector."""
        async with self._drive() as page:
            return await page.locator(selector).first.inner_text()

    async def click(self, selector: str) -> str:
        """Click the first element that matches a CSS selector, and return the URL where the page is then."""
        async with self._drive() as page:
            await page.locator(selector).first.click()
            return page.url


def find_chromium() -> str | None:
    """Return the path of the `chromium` on the `PATH`, or `None` for the one that Playwright installs.

    It's also `None` if `PLAYWRIGHT_BROWSERS_PATH` tells Playwright where that one is.
    """
    return None if os.environ.get('PLAYWRIGHT_BROWSERS_PATH') else shutil.which('chromium')


async def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Do all of the work, however often the run is cancelled meanwhile, and only then be cancelled.

    A Playwright that is interrupted leaves processes behind.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled:
        raise cancelled from task.exception()
    task.result()


# --8<-- [end:toolset]

# --8<-- [start:agents]
browser = BrowserToolset()
reader = Agent('openai:gpt-5-mini', name='reader', toolsets=[browser], defer_model_check=True)
agent = Agent('openai:gpt-5-mini', name='agent', toolsets=[browser], defer_model_check=True)


@agent.tool
async def ask_reader(ctx: RunContext[Any], question: str) -> str:
    """Let the reader answer a question on the page that is open. It can click its way to others."""
    result = await reader.run(question, usage=ctx.usage)
    print(f'The reader answers: {result.output}')
    return result.output


# --8<-- [end:agents]


# --8<-- [start:across]
async def ask_twice() -> None:
    """Open a page in one run, and go on from there in the next."""
    async with toolsets.ToolsetScope(browser) as scope:
        await agent.run(FIRST, toolsets=[scope])
        result = await agent.run(SECOND, toolsets=[scope])
    print(f'In the next run, the agent reads: {result.output}')


# --8<-- [end:across]

HOME = (Path(__file__).parent / 'site' / 'index.html').as_uri()
QUESTION = f'Open {HOME}, and ask the reader how long things can be returned. What is the heading of your page?'
DELEGATED = 'How long can things be returned?'
FIRST, SECOND = (
    f'Open {HOME}.',
    'Click on the first link of the page that is open. What is the heading of the next page?',
)
SCRIPT = scripts(
    {
        QUESTION: [
            call('navigate', url=HOME),
            call('ask_reader', question=DELEGATED),
            call('text', selector='h1'),
        ],
        DELEGATED: [call('click', selector='a'), call('text', selector='p')],
        FIRST: [call('navigate', url=HOME)],
        SECOND: [call('click', selector='a'), call('text', selector='h1')],
    }
)


async def main(model: Model | str) -> None:
    """Open a page, let a sub-agent go on from there, and find the page unmoved; then keep one across runs."""
    with agent.override(model=model), reader.override(model=model):
        result = await agent.run(QUESTION)
        print(f'On its own page, the agent reads: {result.output}')
        await ask_twice()


if __name__ == '__main__':
    run_main(main, SCRIPT)
