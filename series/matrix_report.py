"""Show what a matrix found: a table for the terminal, JUnit XML, and a page for the browser."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.table import Table

from series.matrix import SIDES, CellResult, Matrix
from series.outcomes import MISSING, Compared, Comparison, Result

_SHOWN = 20
"""How many differences the terminal shows; the page has all."""


def summary(found: Matrix) -> str:
    """Return a table with a row for each cell, and the first of the differences below it."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ('Python', 'install', 'resolution'):
        table.add_column(heading, no_wrap=True)
    for heading in ('common', 'fail on both', 'new', 'of them fail', 'flaky', 'differ', 'minutes'):
        table.add_column(heading, justify='right', no_wrap=True)
    for result in found.cells:
        row = [result.cell.python, result.cell.install, result.cell.resolution]
        if (compared := result.comparison) is None:
            row += ['skipped']
        else:
            numbers = (
                *(compared.common, len(compared.failing), len(compared.added), sum(_bad(compared.added))),
                *(len(compared.flaky), len(compared.differences)),
            )
            row += [*map(str, numbers), f'{result.seconds / 60:.1f}']
        table.add_row(*row)
    console = Console(file=io.StringIO(), width=120, color_system=None)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    text = '\n'.join(line.rstrip() for line in console.file.getvalue().splitlines())
    skipped = dict.fromkeys(f'Skipped, since {result.skipped}.' for result in found.cells if result.skipped)
    return '\n'.join([text, *skipped, *found.remarks, *_listed(found.cells)])


def _bad(tests: Iterable[Compared]) -> list[bool]:
    return [bool(test.fork and test.fork.bad) for test in tests]


def _listed(cells: Sequence[CellResult]) -> list[str]:
    rows = [
        f'- {test.test} ({result.cell}): {test.outcome("base")} on the base, {test.outcome("fork")} on the fork'
        for result in cells
        if result.comparison
        for test in result.comparison.differences
    ]
    rows += [
        f'- {test.test} ({result.cell}): {test.outcome("fork")}, a test that the patches add'
        for result in cells
        if result.comparison
        for test in result.comparison.broken
    ]
    rows += [
        f'- {test.test} ({result.cell}): fails on both, but on the base with {test.base.message!r}, and on the fork with '
        f'{test.fork.message!r}'
        for result in cells
        if result.comparison
        for test in result.comparison.otherwise
        if test.base and test.fork
    ]
    rest = len(rows) - _SHOWN
    return ['', *rows[:_SHOWN], *([f'- and {rest} more'] if rest > 0 else [])] if rows else []


def write_report(found: Matrix, folder: Path) -> Path:
    """Write JUnit XML for each cell and side, and a page that shows all of them, in place of what is there.

    Args:
        found: What came of the matrix.
        folder: Where to.

    Returns:
        The page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob('*.xml'):
        stale.unlink()
    for result in found.cells:
        for side in SIDES if result.comparison else ():
            assert result.comparison is not None
            (folder / f'{result.cell.name}-{side}.xml').write_bytes(junit(result.comparison, side, str(result.cell)))
    page = folder / 'index.html'
    page.write_text(html(found), 'utf-8')
    return page


def junit(compared: Comparison, side: str, name: str) -> bytes:
    """Return the results of one side as JUnit XML, as pytest writes it."""
    results = [result for test in compared.tests if (result := _of(test, side))]
    suite = ElementTree.Element('testsuite', name=f'{name}, {side}', tests=str(len(results)))
    counts: Counter[str] = Counter()
    for result in results:
        where, _, test = result.test.partition('::')
        module = where.removesuffix('.py').replace('/', '.')
        cases, _, last = test.rpartition('::') if '[' not in test else ('', '', test)
        case = ElementTree.SubElement(
            suite,
            'testcase',
            classname='.'.join(filter(None, [module, cases.replace('::', '.')])),
            name=last or where,
            time=f'{result.seconds:.3f}',
        )
        kind = _kind(result)
        counts[kind] += 1
        if kind:
            said = ElementTree.SubElement(case, kind, message=_legal(result.message), type=result.outcome)
            said.text = _legal(result.words)
    for kind, attribute in {'failure': 'failures', 'error': 'errors', 'skipped': 'skipped'}.items():
        suite.set(attribute, str(counts[kind]))
    suite.set('time', f'{sum(result.seconds for result in results):.3f}')
    suites = ElementTree.Element('testsuites')
    suites.append(suite)
    return ElementTree.tostring(suites, encoding='utf-8', xml_declaration=True)


def _of(test: Compared, side: str) -> Result | None:
    return test.base if side == 'base' else test.fork


def _kind(result: Result) -> str:
    if result.bad:
        return 'failure' if result.outcome.startswith('failed') else 'error'
    return 'skipped' if result.outcome in ('skipped', 'xfailed') else ''


def _legal(text: str) -> str:
    """Return a text without what XML has no way to say, such as the escape of a terminal's colour."""
    return ''.join(
        character if character >= ' ' or character in '\t\n' else '\N{REPLACEMENT CHARACTER}' for character in text
    )


def html(found: Matrix) -> str:
    """Return a page with everything: a file without any other, which reads well by day and night and on a telephone."""
    differ = found.differences
    verdict = (
        f'{differ} {"test differs" if differ == 1 else "tests differ"}'
        if differ
        else 'No difference between base and fork'
    )
    cells = '\n'.join(_cell(result) for result in found.cells if result.comparison)
    archive = found.line.tests
    source = f'{archive.package} {archive.version}, with what the patches add' if archive else 'the patches'
    if found.tests.of:
        source = f'the line {found.tests.of.name}'
    if found.tests.clone:
        source = f'the clone {found.tests.clone.name}'
    chosen = [*found.tests.only, *([f'-k {found.tests.expression}'] if found.tests.expression else [])]
    notes = [
        f'Upstream’s tests of {escape(source)}' + (f'; only {escape(", ".join(chosen))}' if chosen else '') + '.',
        *map(escape, found.remarks),
        'A test that fails on both says nothing, unless with another message. What differed ran again alone; it is flaky if '
        + 'the two sides then agree.',
    ]
    return _PAGE.format(
        title=escape(f'{found.line.base} and {found.line.version}: upstream’s tests'),
        style=_STYLE,
        verdict=escape(verdict),
        good='bad' if differ else 'good',
        base=escape(found.line.base),
        fork=escape(found.line.version),
        notes=''.join(f'<p>{note}</p>' for note in notes),
        rows='\n'.join(_row(result) for result in found.cells),
        cells=cells,
    )


def _row(result: CellResult) -> str:
    cell, compared = result.cell, result.comparison
    names = ''.join(f'<td>{escape(text)}</td>' for text in (cell.python, cell.install, cell.resolution))
    if compared is None:
        return f'<tr>{names}<td colspan="6" class="skipped">skipped: {escape(result.skipped)}</td></tr>'
    differ = len(compared.differences)
    numbers = (compared.common, len(compared.failing), len(compared.added), len(compared.flaky))
    return (
        f'<tr>{names}<td class="{"bad" if differ else "good"}"><a href="#{cell.name}">{differ or "none"}</a></td>'
        + ''.join(f'<td class="number">{number}</td>' for number in numbers)
        + f'<td class="number">{result.seconds / 60:.1f}</td></tr>'
    )


def _cell(result: CellResult) -> str:
    compared = result.comparison
    assert compared is not None
    counts = ''.join(
        f'<p><b>{side}</b> '
        + ', '.join(f'{number} {escape(name)}' for name, number in compared.count(side).most_common())
        + '</p>'
        for side in SIDES
    )
    differences = compared.differences
    failing_new = [test for test in compared.added if test.fork and test.fork.bad]
    parts = [
        _section('Differences', differences, opened=True) if differences else '<p class="good">No test differs.</p>',
        _section('New on the fork, and failing', failing_new, opened=True),
        _section('Fail on both, but say something else', compared.otherwise, opened=True),
        _section('Flaky: differed once, but not alone', compared.flaky),
        _section('Fail on both', compared.failing),
        _section('New on the fork', [test for test in compared.added if test not in failing_new], plain=True),
        _rest(compared),
    ]
    return f'<section id="{result.cell.name}"><h2>{escape(str(result.cell))}</h2>{counts}{"".join(parts)}</section>'


def _section(title: str, tests: Sequence[Compared], *, opened: bool = False, plain: bool = False) -> str:
    if not tests:
        return ''
    inside = _names(tests) if plain else ''.join(_compared(test) for test in tests)
    return (
        f'<details{" open" if opened else ""}><summary>{escape(title)} <i>{len(tests)}</i></summary>{inside}</details>'
    )


def _compared(test: Compared) -> str:
    sides = ''.join(
        f'<div><h4>{side} <span class="{_class(test.outcome(side))}">{escape(test.outcome(side))}</span>{_again(test, side)}</h4>'
        f'{_said(_of(test, side))}</div>'
        for side in SIDES
    )
    return f'<article><h3>{_name(test.test)}</h3><div class="sides">{sides}</div></article>'


def _again(test: Compared, side: str) -> str:
    outcomes = ', '.join(test.again.get(side, ()))
    return f' <small>alone: {escape(outcomes)}</small>' if outcomes else ''


def _said(result: Result | None) -> str:
    if result is None:
        return ''
    message = f'<p>{escape(result.message)}</p>' if result.message else ''
    words = (
        f'<details><summary>what pytest showed</summary><pre>{escape(result.words)}</pre></details>'
        if result.words
        else ''
    )
    return message + words


def _rest(compared: Comparison) -> str:
    """Return all tests by file, with what came of them on base and fork."""
    files: dict[str, list[Compared]] = {}
    for test in compared.tests:
        files.setdefault(test.test.partition('::')[0], []).append(test)
    inside = ''.join(_file(file, tests) for file, tests in files.items())
    return f'<details><summary>All tests, by file <i>{len(compared.tests)}</i></summary>{inside}</details>'


def _file(file: str, tests: Sequence[Compared]) -> str:
    groups: dict[tuple[str, str], list[Compared]] = {}
    for test in tests:
        groups.setdefault((test.outcome('base'), test.outcome('fork')), []).append(test)
    inside = ''.join(
        f'<p><span class="{_class(base)}">{escape(base)}</span> <span class="{_class(fork)}">{escape(fork)}</span> '
        f'<i>{len(group)}</i></p>{_names(group)}'
        for (base, fork), group in sorted(groups.items())
    )
    return f'<details><summary><code>{escape(file)}</code> <i>{len(tests)}</i></summary>{inside}</details>'


def _names(tests: Sequence[Compared]) -> str:
    return f'<ul>{"".join(f"<li>{_name(test.test)}" for test in tests)}</ul>'


def _name(test: str) -> str:
    """Return the name of a test, with places where a narrow screen may break it."""
    return f'<code>{escape(test).replace("/", "/<wbr>").replace("::", "::<wbr>").replace("_", "_<wbr>")}</code>'


def _class(outcome: str) -> str:
    if outcome == 'passed':
        return 'good'
    return 'none' if outcome in ('skipped', 'xfailed', 'xpassed', MISSING) else 'bad'


_STYLE = """
:root { color-scheme: light dark; --text: light-dark(#1c1e21, #e4e6e9); --quiet: light-dark(#5c6370, #9aa2ad);
  --page: light-dark(#fff, #16181b); --panel: light-dark(#f5f6f8, #1f2226); --line: light-dark(#d9dce1, #363b42);
  --good: light-dark(#15703a, #6fd08c); --bad: light-dark(#b3261e, #ff8a80); --link: light-dark(#0b57d0, #8ab4f8); }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem 1rem 4rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .5rem; } h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; }
h3 { font-size: .95rem; margin: 0 0 .5rem; } h4 { font-size: .9rem; margin: 0 0 .25rem; }
p { margin: .25rem 0; } a { color: var(--link); } i, small { color: var(--quiet); font-style: normal; font-weight: 400; }
.verdict { font-size: 1.15rem; font-weight: 600; } .good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
.none, .skipped { color: var(--quiet); } .good a, .bad a { color: inherit; } .notes { color: var(--quiet); margin: 1rem 0; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { padding: .35rem .75rem .35rem 0; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; }
th { font-size: .85rem; color: var(--quiet); font-weight: 600; } .number { text-align: right; font-variant-numeric: tabular-nums; }
details { margin: .5rem 0; } summary { cursor: pointer; padding: .15rem 0; }
section > details > summary { font-weight: 600; }
details details { margin-left: 1rem; }
article { border: 1px solid var(--line); border-radius: .5rem; background: var(--panel); padding: .75rem; margin: .5rem 0; }
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: .75rem; }
.sides > div { min-width: 0; } .sides details { margin-left: 0; } .sides p { overflow-wrap: anywhere; }
code, pre { font: .85em/1.45 ui-monospace, monospace; } code { overflow-wrap: anywhere; }
pre { overflow-x: auto; max-height: 30rem; padding: .5rem; border: 1px solid var(--line); border-radius: .25rem; background: var(--page); }
ul { margin: .25rem 0 .75rem; padding-left: 1.25rem; }
"""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>Upstream’s tests on base and fork</h1>
<p>Base <b>{base}</b>, fork <b>{fork}</b></p>
<p class="verdict {good}">{verdict}</p>
<div class="notes">{notes}</div>
<div class="scroll"><table>
<thead><tr><th>Python<th>install<th>resolution<th>differences<th class="number">common<th class="number">fail on both
<th class="number">new<th class="number">flaky<th class="number">minutes</tr></thead>
<tbody>
{rows}
</tbody>
</table></div>
{cells}
</body>
</html>
"""
