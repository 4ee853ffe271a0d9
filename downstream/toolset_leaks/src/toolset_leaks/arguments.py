"""Make arguments for tool calls from the tools' schemas."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import hypothesis
from hypothesis import strategies as st

Strategy = st.SearchStrategy[Any]


class ArgumentsError(ValueError):
    """Arguments that were given and can't be used."""


class Arguments:
    """Makes arguments, and remembers what was used and returned: an id that one tool returns is what another one asks for.

    Args:
        seed: The same seed gives the same arguments.
        given: The arguments of tools, by the tools' names: a dict, or a list of dicts for one call after another.

    Raises:
        ArgumentsError: What was given is something else.
    """

    def __init__(self, seed: int = 0, given: Mapping[str, Any] | None = None):
        self.given = {tool: _calls(tool, calls) for tool, calls in (given or {}).items()}
        self._next = {tool: itertools.cycle(calls) for tool, calls in self.given.items()}
        self._seed = seed
        self._used: dict[str, list[Any]] = {}
        self._ids: list[str] = []
        self._made: dict[str, Iterator[dict[str, Any]]] = {}

    def make(self, tool: str, schema: dict[str, Any], *, reuse: bool, all_parameters: bool = True) -> dict[str, Any]:
        """Make the arguments of one call.

        Args:
            tool: The name of the tool.
            schema: The JSON schema of its parameters.
            reuse: Whether to prefer values that earlier calls had under the same name, and ids that they returned.
            all_parameters: Whether parameters with a default are given, too.

        Raises:
            ValueError: No arguments could be made from the schema.
        """
        given = next(self._next[tool]) if tool in self._next else None
        required: Sequence[str] = schema.get('required', ())
        if given is None or not given.keys() >= set(required):
            made = self._make(tool, schema, reuse)
            if given is not None or not all_parameters:
                made = {name: made[name] for name in made if name in required}
        else:
            made = {}
        made |= given or {}
        for name, value in made.items():
            self._used.setdefault(name, []).append(value)
        return made

    def _make(self, tool: str, schema: dict[str, Any], reuse: bool) -> dict[str, Any]:
        if tool not in self._made:
            self._made[tool] = self._examples(schema)
        made = dict(next(self._made[tool]))
        if reuse:
            for name, value in made.items():
                if isinstance(value, str) and (known := self._known(name)):
                    made[name] = known
        return made

    def returned(self, result: Any) -> None:
        """Remember what looks like an id in what a tool returned."""
        self._ids += re.findall(r'\b(?=[\w-]*\d)[A-Za-z0-9][\w-]{3,35}\b', str(result)[:5000])

    def _known(self, name: str) -> Any:
        if re.search(r'(^|_)ids?$', name) and self._ids:
            return self._ids[-1]
        texts = [value for value in self._used.get(name, ()) if isinstance(value, str)]
        return texts[-1] if texts and re.search(r'(^|_)(id|name|path|key|file)$', name) else None

    def _examples(self, schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield example after example, those first that say most."""
        examples: list[dict[str, Any]] = []

        @hypothesis.seed(self._seed)
        @hypothesis.settings(
            max_examples=12,
            database=None,
            deadline=None,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=list(cast('Iterable[hypothesis.HealthCheck]', hypothesis.HealthCheck)),
        )
        @hypothesis.given(from_schema(schema))
        def collect(example: Any) -> None:
            examples.append(example)

        try:
            collect()
        except Exception as error:
            raise ValueError(f'No arguments can be made from the schema {schema}.') from error
        # Hypothesis begins with the simplest.
        unique = list({repr(example): example for example in reversed(examples)}.values())
        while True:
            yield from unique


def _calls(tool: str, given: Any) -> list[dict[str, Any]]:
    """Return the arguments of the calls of one tool."""
    calls = cast('list[Any]', given) if isinstance(given, list) else [given]
    if not calls or not all(isinstance(call, dict) for call in calls):
        raise ArgumentsError(
            f'The arguments of `{tool}` are {given!r}. Write an object, {{"name": value}}, or a list of such for one call after another.'
        )
    return calls


def from_schema(schema: dict[str, Any]) -> Strategy:
    """Return a strategy for values that a JSON schema allows and that can be told from each other and from defaults.

    Texts are words and numbers are above 1 where the schema allows it, and all parameters are given. `hypothesis-jsonschema`
    isn't used since it uses Hypothesis' internals, and its last release, 0.23.1, doesn't work with Hypothesis 6.170.
    """
    definitions = schema.get('$defs', {})

    def strategy(given: Any, depth: int) -> Strategy:
        def inner(schema: Any) -> Strategy:
            return strategy(schema, depth + 1)

        if not isinstance(given, dict) or not given:
            return st.text('abcdefghijkl', min_size=4, max_size=9)
        schema = cast('dict[str, Any]', given)
        if '$ref' in schema:
            return inner(definitions.get(schema['$ref'].rpartition('/')[2], {}))
        if 'const' in schema:
            return st.just(schema['const'])
        if 'enum' in schema:
            return st.sampled_from(schema['enum'])
        for union in ('anyOf', 'oneOf'):
            if options := schema.get(union):
                some = [option for option in options if option.get('type') != 'null'] if depth < 6 else []
                return st.one_of([inner(option) for option in some]) if some else st.none()
        if len(parts := schema.get('allOf', ())) == 1:
            return inner(parts[0])
        kind = schema.get('type', 'object' if 'properties' in schema else 'string')
        if isinstance(kind, list):
            kind = next(name for name in cast('list[str]', kind) if name != 'null')
        return _BY_TYPE[kind](schema, inner, depth)

    return strategy(schema, 0)


Inner = Callable[[Any], Strategy]


def _string(schema: dict[str, Any], inner: Inner, depth: int) -> Strategy:
    if pattern := schema.get('pattern'):
        return st.from_regex(str(pattern), fullmatch=True)
    if by_format := _FORMATS.get(schema.get('format', '')):
        return by_format
    least = schema.get('minLength', 0)
    most = schema.get('maxLength', max(least, 9))
    return st.text('abcdefghijklmnopqrstuvwxyz', min_size=min(max(least, 5), most), max_size=most)


def _number(schema: dict[str, Any], inner: Inner, depth: int) -> Strategy:
    low = schema.get('minimum', schema['exclusiveMinimum'] + 1 if 'exclusiveMinimum' in schema else None)
    high = schema.get('maximum', schema['exclusiveMaximum'] - 1 if 'exclusiveMaximum' in schema else None)
    low = min(2, high) if low is None and high is not None else 2 if low is None else low
    high = low + 97 if high is None else high
    if schema['type'] == 'number':
        return st.floats(low, high, allow_nan=False)
    step = schema.get('multipleOf', 1)
    return st.integers(-(-low // step), high // step).map(lambda number: number * step)


def _array(schema: dict[str, Any], inner: Inner, depth: int) -> Strategy:
    if fixed := schema.get('prefixItems'):
        return st.tuples(*map(inner, fixed)).map(list)
    least = schema.get('minItems', 0)
    most = min(schema.get('maxItems', 99), max(least, 3 if depth < 6 else 0))
    unique = repr if schema.get('uniqueItems') else None
    return st.lists(inner(schema.get('items')), min_size=min(max(least, 1), most), max_size=most, unique_by=unique)


def _object(schema: dict[str, Any], inner: Inner, depth: int) -> Strategy:
    given = schema.get('properties', {})
    if depth > 6:
        given = {name: given[name] for name in schema.get('required', ())}
    if given or not isinstance(more := schema.get('additionalProperties'), dict):
        return st.fixed_dictionaries({name: inner(part) for name, part in given.items()})
    return st.dictionaries(st.text('abcdefgh', min_size=4, max_size=9), inner(more), min_size=1, max_size=2)


_BY_TYPE: dict[str, Callable[[dict[str, Any], Inner, int], Strategy]] = {
    'string': _string,
    'integer': _number,
    'number': _number,
    'boolean': lambda schema, inner, depth: st.booleans(),
    'null': lambda schema, inner, depth: st.none(),
    'array': _array,
    'object': _object,
}
_FORMATS = {
    'date': st.dates().map(str),
    'time': st.times().map(str),
    'date-time': st.datetimes().map(lambda moment: f'{moment.isoformat()}Z'),
    'duration': st.integers(1, 99).map(lambda days: f'P{days}D'),
    'uuid': st.uuids().map(str),
    'email': st.emails(domains=st.just('example.org')),
    'uri': st.sampled_from(['https://example.org/one', 'https://example.org/two', 'https://example.org/three']),
}
