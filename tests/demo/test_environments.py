from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from demo.environments import Side, check_side, run_sides, show
from demo.errors import FailedScriptError, MissingEnvironmentError, UnusableModelError
from tests.demo.conftest import WriteScript
from tests.demo.facts import count_facts, environment_facts, order_facts, printing

PYTHON = Path(sys.executable)
SIDES = [Side('base', PYTHON), Side('fork', PYTHON)]
GOOD = [environment_facts(), count_facts('second search'), order_facts()]


def ignore(side: Side, done: int, total: int) -> None:
    pass


def test_check_side_missing_interpreter_names_the_next_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingEnvironmentError) as caught:
        check_side(Side('fork', tmp_path / 'build' / 'envs' / 'fork-1.0' / 'bin' / 'python'))
    assert str(caught.value) == (
        'There is no environment with the fork: `build/envs/fork-1.0/bin/python` does not exist.\n'
        'Make it with `make fork`, or name the interpreter of another with `--fork`.'
    )


def test_run_sides_reads_what_each_script_printed_and_reports_each_step(write_script: WriteScript) -> None:
    write_script(printing(*GOOD))
    steps: list[tuple[str, int, int]] = []
    base, fork = run_sides(SIDES, None, lambda side, done, total: steps.append((side.name, done, total)))
    assert base == fork
    assert [scenario.key for scenario in base.scenarios] == ['count', 'transaction']
    assert [step for step in steps if step[0] == 'fork'] == [('fork', 0, 2), ('fork', 1, 2), ('fork', 2, 2)]


def test_run_sides_passes_the_model_on_and_keeps_the_users_own_packages_out(
    write_script: WriteScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('PYTHONPATH', str(Path.cwd()))
    write_script(
        'import json, os, sys\n'
        'model = {"arguments": sys.argv[1:], "path": os.environ["PYTHONPATH"] in sys.path}\n'
        f'print(json.dumps({environment_facts(scenarios=0)!r} | {{"model": json.dumps(model)}}))'
    )
    (result,) = run_sides(SIDES[:1], 'openai:x', ignore)
    assert result.environment.model == '{"arguments": ["--model", "openai:x"], "path": false}'


def test_run_sides_text_of_any_language_arrives(write_script: WriteScript, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('LC_ALL', 'C')
    write_script('print(\'{"version": "größer", "python": "3", "model": null, "scenarios": 0}\')')
    assert run_sides(SIDES[:1], None, ignore)[0].environment.version == 'größer'


def test_run_sides_missing_package_names_the_commands_that_install_it(write_script: WriteScript) -> None:
    refusal = 'Please install `x`, you can use the `x` optional group — `pip install "pydantic-ai-slim[x]"`'
    write_script(printing({'unusable_model': refusal}))
    with pytest.raises(UnusableModelError) as caught:
        run_sides(SIDES, 'x:y', ignore)
    assert str(caught.value).startswith('The model `x:y` cannot be used in the environment of the ')
    assert caught.value.remedy.count(f'pip install --python {show(PYTHON)} "pydantic-ai-slim[x]"`') == 2
    assert caught.value.words == refusal


def test_run_sides_missing_key_says_what_to_set(write_script: WriteScript) -> None:
    write_script(printing({'unusable_model': 'Set the `X_API_KEY` environment variable'}))
    with pytest.raises(UnusableModelError) as caught:
        run_sides(SIDES[:1], 'x:y', ignore)
    assert str(caught.value) == (
        'The model `x:y` cannot be used in the environment of the base.\n'
        'Set what is missing in the environment, or name another model, and run the same command again.\n\n'
        '    Set the `X_API_KEY` environment variable'
    )


@pytest.mark.parametrize(
    ('text', 'problem', 'words'),
    [
        ('raise SystemExit("No module named `x`")', 'It printed nothing.', 'No module named `x`'),
        (printing(*GOOD, then='raise SystemExit("broken")'), 'It ended with exit status 1.', 'broken'),
        (printing(*GOOD[:2]), 'It ran only 1 of 2 scenarios.', ''),
        ('print("hello")', "A line of it is 'hello\\n', which is not JSON.", ''),
    ],
)
def test_run_sides_script_that_fails_is_reported_with_its_own_words(
    write_script: WriteScript, text: str, problem: str, words: str
) -> None:
    write_script(text)
    with pytest.raises(FailedScriptError) as caught:
        run_sides(SIDES[:1], None, ignore)
    assert caught.value.problem == f'`demo/scenarios.py` failed in the environment of the base. {problem}'
    assert 'make fork' in caught.value.remedy
    assert caught.value.words == words


def test_run_sides_one_that_fails_stops_the_other(write_script: WriteScript, tmp_path: Path) -> None:
    # Whichever script comes first to make the folder goes on for a minute, the other one fails.
    text = 'import os, time\ntry:\n    os.mkdir({!r})\nexcept OSError:\n    raise SystemExit("broken")\ntime.sleep(60)'
    write_script(text.format(str(tmp_path / 'first')))
    start = time.monotonic()
    with pytest.raises(FailedScriptError, match='broken'):
        run_sides(SIDES, None, ignore)
    assert time.monotonic() - start < 30


def test_run_sides_interpreter_that_does_not_start_names_the_next_command(tmp_path: Path) -> None:
    python = tmp_path / 'python'
    python.write_text('', encoding='utf-8')
    with pytest.raises(MissingEnvironmentError) as caught:
        run_sides([Side('base', python)], None, ignore)
    assert str(caught.value) == (
        f'The interpreter `{python}` of the base does not start: Permission denied.\n'
        'Make the environment again with `make fork`, or name another interpreter with `--base`.'
    )
