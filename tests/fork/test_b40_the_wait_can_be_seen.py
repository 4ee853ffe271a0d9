"""B40: while a handler is awaited, there is a span that says what it was asked and what it answered."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import DeferredToolRequests, DeferredToolResults, RunContext
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.models.instrumented import InstrumentationSettings

from .approvals import OUTPUTS, Tools, agent_of
from .toolsets import METHODS

pytestmark = pytest.mark.anyio

NAME = 'ask deferred tool handler'


class Traced:
    """The spans of the runs of an agent."""

    def __init__(self, *, include_content: bool = False) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.instrumentation: Instrumentation = Instrumentation(
            settings=InstrumentationSettings(tracer_provider=provider, include_content=include_content)
        )

    @property
    def spans(self) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == NAME]

    def calls(self) -> list[dict[str, str]]:
        """Return what the only span says of each call."""
        (span,) = self.spans
        assert span.attributes is not None
        return json.loads(str(span.attributes['pydantic_ai.deferred_tool_calls']))


@pytest.mark.parametrize('method', METHODS)
async def test_b40_the_span_covers_the_wait_and_says_what_came_of_it(method: str):
    traced = Traced()

    async def handler(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        await asyncio.sleep(0.2)
        return DeferredToolResults(approvals={'delete': True, 'write': False}, calls={'send': 'sent'})

    agent = agent_of(
        Tools(),
        ['look', 'delete', 'delete.2', 'write', 'send'],
        output_type=OUTPUTS,
        capabilities=[traced.instrumentation],
    )
    output = await METHODS[method](agent, deferred_tool_handler=handler)
    assert isinstance(output, DeferredToolRequests)
    assert {call['id']: (call['name'], call['outcome']) for call in traced.calls()} == {
        'delete': ('delete', 'approved'),
        'delete.2': ('delete', 'left over'),
        'write': ('write', 'denied'),
        'send': ('send', 'answered'),
    }
    (span,) = traced.spans
    assert span.start_time and span.end_time and span.end_time - span.start_time >= 190_000_000
    assert span.parent is not None
