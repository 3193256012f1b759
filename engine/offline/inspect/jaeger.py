"""Spans as the JSON that Jaeger's page uploads: {"data": [a trace, ...]}. Pure.

Its times are whole microseconds. Both ends of a span are rounded down, so what lay within another
still does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolwright.tracing.otlp import SERVICE
from toolwright.tracing.spans import Span, Value

_TYPES = {bool: "bool", int: "int64", float: "float64", str: "string"}


def trace(spans: Iterable[Span]) -> dict[str, Any]:
    """One trace; `spans` are all of it."""
    own = list(spans)
    names = list(dict.fromkeys(span.process for span in own))
    places = {name: f"p{number}" for number, name in enumerate(names, 1)}
    return {
        "traceID": own[0].trace,
        "spans": [_span(span, places[span.process]) for span in own],
        "processes": {
            place: {"serviceName": SERVICE.format(name), "tags": []}
            for name, place in places.items()
        },
        "warnings": None,
    }


def _span(span: Span, place: str) -> dict[str, Any]:
    start = span.start_ns // 1000
    tags = [_tag(key, value) for key, value in span.attributes.items()]
    if span.error:
        tags += [_tag("error", True), _tag("otel.status_description", span.error)]
    references = [
        {"refType": "FOLLOWS_FROM", "traceID": link.trace, "spanID": link.span}
        for link in span.links
    ]
    if span.parent:
        above = {"refType": "CHILD_OF", "traceID": span.trace, "spanID": span.parent}
        references.insert(0, above)
    return {
        "traceID": span.trace,
        "spanID": span.id,
        "operationName": span.name,
        "references": references,
        "startTime": start,
        "duration": span.end_ns // 1000 - start,
        "tags": tags,
        "logs": [],
        "processID": place,
        "warnings": None,
    }


def _tag(key: str, value: Value) -> dict[str, Any]:
    finite = not isinstance(value, float) or value - value == 0
    return {
        "key": key,
        "type": _TYPES[type(value)] if finite else "string",
        "value": value if finite else str(value),
    }
