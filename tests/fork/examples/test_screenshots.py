"""`make screenshots` takes the pictures that pages show, light and dark."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import screenshots

pytestmark = pytest.mark.anyio


@pytest.mark.usefixtures('chromium')
async def test_screenshots_are_the_small_pictures_that_pages_show(tmp_path: Path) -> None:
    await screenshots.main(tmp_path)

    taken = {picture.name: picture.stat().st_size for picture in tmp_path.iterdir()}
    pages = ''.join(page.read_text('utf-8') for page in screenshots.IMAGES.parent.rglob('*.md'))
    assert sorted(taken) == sorted(picture.name for picture in screenshots.IMAGES.iterdir())
    assert [name for name in taken if f'images/{name}#gh-{name[:-4].rpartition("-")[2]}-mode-only)' not in pages] == []
    assert max(taken.values()) < 40_000
