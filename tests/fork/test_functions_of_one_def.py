"""Functions that one `def` makes, under many names, have their schemas reused when toolsets are built again."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import FunctionToolset

NAMES = [f'look_up_{index}' for index in range(50)]


def _make(name: str) -> Any:
    async def look_up(value: int, text: str = 'nothing') -> str:
        return text

    look_up.__name__ = look_up.__qualname__ = name
    look_up.__doc__ = f'Look up what is in {name}.'
    return look_up


def _build(names: list[str]) -> dict[str, Any]:
    toolset = FunctionToolset[Any]([_make(name) for name in names])
    return {name: tool.function_schema for name, tool in toolset.tools.items()}


@pytest.mark.parametrize('again', [NAMES, NAMES[::-1]], ids=['in order', 'reversed'])
def test_functions_of_one_def_under_many_names_reuse_their_schemas(again: list[str]):
    first, second = _build(NAMES), _build(again)
    for name in NAMES:
        assert second[name].validator is first[name].validator
        assert second[name].description == f'Look up what is in {name}.'
        assert second[name].json_schema == first[name].json_schema
        assert second[name].json_schema is not first[name].json_schema
        assert second[name].function.__name__ == name


def test_functions_of_one_def_keep_a_bounded_number_of_schemas():
    names = [f'other_{index}' for index in range(400)]
    first, last = _build(names[:1]), _build(names)
    again = _build([names[-1], names[0]])
    assert again[names[-1]].validator is last[names[-1]].validator
    assert again[names[0]].validator is not first[names[0]].validator
