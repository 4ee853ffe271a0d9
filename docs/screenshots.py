"""Take the pictures of the pages that the examples serve: `make screenshots`. It runs in the environment of the examples."""

from __future__ import annotations

import asyncio
import re
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from playwright.async_api import async_playwright

from examples.browser import find_chromium

IMAGES = Path(__file__).parent / 'images'


async def main() -> None:
    """Have Ada write a note and send it in step 4 of the tutorial, and take a picture of the question."""
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, '-m', 'examples.tutorial', '4', '--port', '0'), stdout=PIPE
    )
    try:
        assert server.stdout
        found = re.search(r'Open (\S+)', (await server.stdout.readline()).decode())
        assert found
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=find_chromium())
            page = await browser.new_page(viewport={'width': 360, 'height': 440})
            await page.goto(found[1])
            for text in ('keep buy tea', 'send mum'):
                await page.fill('input', text)
                await page.keyboard.press('Enter')
                await page.wait_for_selector(
                    '[data-done]' if text.startswith('keep') else '.question', state='attached'
                )
            IMAGES.mkdir(exist_ok=True)
            await page.screenshot(path=IMAGES / 'question.png')
            await browser.close()
    finally:
        server.terminate()
        await server.wait()


if __name__ == '__main__':
    asyncio.run(main())
