"""Take the pictures of the pages that the examples serve: `make screenshots`. It runs in the environment of the examples."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Literal

from playwright.async_api import Browser, async_playwright

from examples.approvals import DELEGATE
from examples.browser import find_chromium

IMAGES = Path(__file__).parent / 'images'

PICTURES = {
    'chat': (['examples.tutorial', '4', '--port', '0'], ['keep buy tea', 'send mum']),
    'desk': (['examples.approvals'], [DELEGATE]),
}
"""The pictures by name: the example that serves the page, and what a person writes there until a question comes."""

SCHEMES: tuple[Literal['light', 'dark'], ...] = ('light', 'dark')


async def main(folder: Path = IMAGES) -> None:
    """Write to each page until it asks something, and take a picture of the question, light and dark."""
    folder.mkdir(exist_ok=True)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium())
        for name, (example, texts) in PICTURES.items():
            server = await asyncio.create_subprocess_exec(
                *(sys.executable, '-m', *example), stdout=PIPE, env=os.environ | {'PORT': '0'}
            )
            try:
                assert server.stdout
                found = re.search(r'Open (\S+)', (await server.stdout.readline()).decode())
                assert found
                await take(browser, found[1], texts, folder / name)
            finally:
                server.terminate()
                await server.wait()
        await browser.close()


async def take(browser: Browser, url: str, texts: list[str], file: Path) -> None:
    """Write the texts to a page, and take a picture of the question that the last one leads to."""
    page = await browser.new_page(viewport={'width': 360, 'height': 400})
    await page.goto(url)
    for text in texts:
        await page.fill('input', text)
        await page.keyboard.press('Enter')
        await page.wait_for_selector('.question' if text is texts[-1] else '[data-done]', state='attached')
    for scheme in SCHEMES:
        await page.emulate_media(color_scheme=scheme)
        await page.screenshot(path=f'{file}-{scheme}.png')
    await page.close()


if __name__ == '__main__':
    asyncio.run(main())
