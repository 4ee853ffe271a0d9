"""Which line is meant."""

from __future__ import annotations

import shutil
from pathlib import Path

from series.line import Line, digest_patches, find_line, find_lines
from tests.series.upstream import refusal


def copy_line(line: Line, name: str) -> None:
    folder = line.folder.parent / name
    shutil.copytree(line.folder, folder)
    toml = folder / 'line.toml'
    toml.write_text(toml.read_text().replace(f'base = "{line.base}"', f'base = "{name}"'))


def test_find_line_without_a_name_finds_the_newest(line: Line) -> None:
    for name in ('1.10.0', '1.9.0', '1.10.0rc1'):
        copy_line(line, name)
    (line.folder.parent / '2.0.0').mkdir()  # has no `line.toml`
    assert find_line(line.root).base == '1.10.0'


def test_find_lines_finds_all_the_newest_last(line: Line) -> None:
    for name in ('1.10.0', '1.9.0'):
        copy_line(line, name)
    lines = find_lines(line.root)
    assert [(one.name, one.is_newest) for one in lines] == [('1.0.0', False), ('1.9.0', False), ('1.10.0', True)]


def test_find_line_outside_of_a_checkout_says_so(tmp_path: Path) -> None:
    assert refusal(find_line, tmp_path) == (
        f'There is no line in `{tmp_path}`: no folder of its `patches/` holds a `line.toml`.\n'
        "Go to the repository's root and run the same command again."
    )


def test_patches_digest_tells_bytes_and_order_apart(line: Line) -> None:
    def write(**texts: str) -> str:
        shutil.rmtree(line.folder / 'fixes', ignore_errors=True)
        (line.folder / 'fixes').mkdir()
        for name, text in texts.items():
            (line.folder / 'fixes' / f'{name}.patch').write_text(text)
        (line.folder / 'series').write_text('# A comment\n\n' + ''.join(f'fixes/{name}.patch\n' for name in texts))
        return digest_patches(line.patches)

    one = write(a='one', b='two')
    assert write(c='one', b='two') == one
    assert len({one, write(a='two', b='one'), write(a='one', b='three')}) == 3
