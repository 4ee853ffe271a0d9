"""Rules: which calls of a tool are allowed, asked about or denied, judged by the arguments that the tool gets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from fnmatch import fnmatchcase
from inspect import iscoroutinefunction
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, cast, get_args

from toolset_first.errors import ToolsetFirstError

Verdict: TypeAlias = Literal['allow', 'ask', 'deny']
Rule: TypeAlias = Verdict | Mapping[str, Mapping[str, Verdict]] | Callable[[dict[str, Any]], Verdict]
"""What is said of a tool's calls: always the same; by argument, as `{'account': {'travel*': 'allow'}}`; or by a function of the arguments.

In a pattern, `*` stands for anything, `/` and `..` included, and `?` for one character; so use a function where a path is judged. The narrowest pattern that matches counts,
in whatever order they are written; of several of which none is within another, the strictest."""

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


class ApprovalError(ToolsetFirstError):
    """A call that nobody was there to approve, or rules that don't say anything."""


def frozen(rules: Mapping[str, Rule] | None) -> Mapping[str, Rule]:
    """Return a copy of rules that nobody can change.

    Raises:
        ApprovalError: One of them is none.
    """
    if rules is not None and not isinstance(rules, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ApprovalError(f'Rules are a mapping with a rule for each tool, not {rules!r}.')
    return MappingProxyType({tool: _frozen(tool, rule) for tool, rule in (rules or {}).items()})


def _frozen(tool: object, rule: object) -> Rule:
    if not isinstance(tool, str):
        raise ApprovalError(f'A rule is for the name of a tool, and {tool!r} is no text. Put it in quotes.')
    if iscoroutinefunction(rule):
        raise ApprovalError(f'The rule for `{tool}` is an async function. Write one with `def`: nothing waits for it.')
    if callable(rule) or rule in VERDICTS:
        return cast('Rule', rule)
    if isinstance(rule, Mapping) and rule:
        copied = {name: _patterns(patterns) for name, patterns in cast('Mapping[Any, Any]', rule).items()}
        if all(isinstance(name, str) and patterns for name, patterns in copied.items()):
            return MappingProxyType(cast('dict[str, Mapping[str, Verdict]]', copied))
    raise ApprovalError(
        f'The rule {rule!r} for `{tool}` is none. Write `allow`, `ask` or `deny`, or patterns by argument such as '
        f"{{'account': {{'travel*': 'allow', '*': 'ask'}}}}. A pattern that looks like a number or a truth value needs quotes."
    )


def _patterns(patterns: object) -> Mapping[str, Verdict] | None:
    """Return a copy of the patterns of an argument, or `None` if these are none."""
    if not isinstance(patterns, Mapping) or not patterns:
        return None
    known = cast('Mapping[Any, Any]', patterns).items()
    good = all(isinstance(pattern, str) and verdict in VERDICTS for pattern, verdict in known)
    return MappingProxyType(dict(known)) if good else None


def judge(tool: str, rule: Rule, arguments: Any, schema: Mapping[str, Any]) -> Verdict:
    """Return what a rule says of a call. Where patterns for several arguments contradict each other, the strictest counts.

    Args:
        tool: The tool.
        rule: Its rule.
        arguments: What the tool gets: validated, and with the values of parameters that were left out.
        schema: The JSON schema of its parameters.

    Raises:
        ApprovalError: A function says something else, or a pattern is for what isn't a text.
    """
    given = _parameters(arguments, schema.get('properties', {}))
    if callable(rule):
        said: Any = rule(given)
        if said not in VERDICTS:
            raise ApprovalError(f'The rule for `{tool}` returned {said!r}. It returns `allow`, `ask` or `deny`.')
        return said
    if not isinstance(rule, Mapping):
        return rule
    found: set[Verdict] = set()
    for name, patterns in rule.items():
        if name in given:
            found.add(_matched(patterns, _text(tool, name, given[name])))
        else:  # a server makes of it what it likes, so it counts as whatever the patterns say at their strictest
            found.add('deny' if 'deny' in patterns.values() else 'ask')
    return strictest(found)


def _parameters(arguments: Any, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a tool gets, by the names that the model calls it by, as far as these are known."""
    if not isinstance(arguments, Mapping):
        return _fields(arguments, properties)
    given = dict(cast('Mapping[str, Any]', arguments))
    if len(given) == 1:  # a function whose one parameter is a model has the model's fields for parameters
        fields = _fields(next(iter(given.values())), properties)
        if fields and properties.keys() <= fields.keys():
            return fields
    if given.keys() - properties.keys():  # one of these may be what the schema calls otherwise
        return given
    return {name: one['default'] for name, one in properties.items() if 'default' in one} | given


def _fields(value: Any, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a model or a dataclass by their aliases in a schema, and none of anything else."""
    kind: Any = cast(Any, type)(value)
    known: Mapping[str, Any] = getattr(kind, '__pydantic_fields__', None) or getattr(kind, '__dataclass_fields__', {})
    found: dict[str, Any] = {}
    for name, field in known.items():
        aliases: list[Any] = [getattr(field, 'validation_alias', None), getattr(field, 'alias', None)]
        aliases = [*getattr(aliases[0], 'choices', ()), *aliases]
        called = [alias for alias in aliases if isinstance(alias, str) and alias in properties]
        found[called[0] if called else name] = getattr(value, name)
    return found | (getattr(value, '__pydantic_extra__', None) or {})


def _matched(patterns: Mapping[str, Verdict], value: str) -> Verdict:
    """Return what the narrowest patterns say that match, in whatever order they are written."""
    found = [pattern for pattern in patterns if _matches(pattern, value)]
    narrowest = [one for one in found if not any(_is_within(other, one) for other in found)]
    return strictest(patterns[one] for one in narrowest)


def _matches(pattern: str, value: str) -> bool:
    return fnmatchcase(value, pattern.replace('[', '[[]'))  # which would begin a set of characters


def _is_within(narrow: str, wide: str) -> bool:
    """Whether a pattern matches less than another one does."""
    return _covers(wide, narrow) and not _covers(narrow, wide)


def _covers(wide: str, narrow: str) -> bool:
    # As a text, `*` is matched by another `*` only, since `?` stands for one character.
    return fnmatchcase(narrow, wide.replace('[', '[[]').replace('?', '[!*]'))


def strictest(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the strictest of what is said of a call, and `ask` if nothing is."""
    found = set(verdicts)
    return 'deny' if 'deny' in found else 'allow' if found == {'allow'} else 'ask'


def _text(tool: str, name: str, value: object) -> str:
    value = value.value if isinstance(value, Enum) else value
    if value is None:
        return ''
    if isinstance(value, str):
        return value
    raise ApprovalError(
        f'The rule for `{tool}` has patterns for `{name}`, and the tool gets {value!r}, which is no text. '
        'Judge it with a function of the arguments.'
    )


def check_rules(rules: Mapping[str, Rule], tools: Mapping[str, Mapping[str, Any]], *, all_known: bool = True) -> None:
    """Refuse rules that name no tool or no parameter of it, and patterns for parameters that aren't texts.

    Args:
        rules: The rules.
        tools: The JSON schemas of the tools' parameters, by the names that models call the tools by.
        all_known: Whether there are no further tools.

    Raises:
        ApprovalError: Some rules are wrong; all are named.
    """
    faults: list[str] = []
    for tool, rule in rules.items():
        if tool not in tools:
            if all_known:
                known = ', '.join(f'`{name}`' for name in tools) or 'none'
                faults.append(f'The rule for `{tool}` names no tool. The tools are called: {known}.')
        elif isinstance(rule, Mapping):
            faults.extend(_argument_faults(tool, cast('Mapping[str, Any]', rule), tools[tool]))
    if faults:
        raise ApprovalError('\n'.join(faults))


def _argument_faults(tool: str, rule: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    properties: Mapping[str, Any] = schema.get('properties', {})
    known = ', '.join(f'`{name}`' for name in properties) or 'none'
    return [
        f'The rule for `{tool}` names no parameter of it with `{name}`. Its parameters are: {known}.'
        if name not in properties
        else f'The rule for `{tool}` has patterns for `{name}`, which is no text. Judge it with a function of the '
        "arguments, `ToolsetSpec(approval_config={'" + tool + "': judge})`."
        for name in rule
        if name not in properties or not _is_text(properties[name], schema.get('$defs', {}))
    ]


def _is_text(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> bool:
    """Whether all values that fit are texts, or missing."""
    if reference := schema.get('$ref'):
        return _is_text(definitions.get(reference.rpartition('/')[2], {}), definitions)
    if choices := schema.get('anyOf'):
        return all(_is_text(one, definitions) or one == {'type': 'null'} for one in choices)
    if 'enum' in schema or 'const' in schema:
        values: list[Any] = schema.get('enum', [schema.get('const')])
        return all(isinstance(one, str) for one in values)
    # What has a format, such as a date or a path, has many spellings
    return schema.get('type') == 'string' and 'format' not in schema


def shown(rule: Rule) -> str:
    """Return a rule as it is written."""
    if isinstance(rule, str):
        return rule
    if callable(rule):
        return f'what `{getattr(rule, "__qualname__", repr(rule))}` says'
    return json.dumps({name: dict(patterns) for name, patterns in rule.items()}, ensure_ascii=False)
