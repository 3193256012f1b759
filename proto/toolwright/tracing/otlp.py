"""Spans as OTLP's JSON: what collectors take at /v1/traces, and Jaeger's and Grafana's files. Pure.

The JSON encoding of ExportTraceServiceRequest: ids are hex, 64-bit numbers are texts. JSON, and not
protobuf, because every collector takes both, and this needs no package.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolwright.tracing.spans import Span, Value

SCOPE = "toolwright"
SERVICE = "toolwright-{}"
"""Name of a process's service."""
_INTERNAL, _ERROR = 1, 2


def request(spans: Iterable[Span]) -> dict[str, Any]:
    """An ExportTraceServiceRequest, a resource for each process."""
    processes: dict[str, list[Span]] = {}
    for span in spans:
        processes.setdefault(span.process, []).append(span)
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": [_attribute("service.name", SERVICE.format(process))]},
                "scopeSpans": [{"scope": {"name": SCOPE}, "spans": [_span(one) for one in own]}],
            }
            for process, own in processes.items()
        ]
    }


def _span(span: Span) -> dict[str, Any]:
    out: dict[str, Any] = {
        "traceId": span.trace,
        "spanId": span.id,
        "name": span.name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": [_attribute(key, value) for key, value in span.attributes.items()],
    }
    if span.parent:
        out["parentSpanId"] = span.parent
    if span.error:
        out["status"] = {"code": _ERROR, "message": span.error}
    if span.links:
        out["links"] = [{"traceId": one.trace, "spanId": one.span} for one in span.links]
    return out


def _attribute(key: str, value: Value) -> dict[str, Any]:
    match value:
        case bool():
            return {"key": key, "value": {"boolValue": value}}
        case int():
            return {"key": key, "value": {"intValue": str(value)}}
        case float():
            # JSON has no NaN; protobuf's JSON has it as a text.
            finite = value - value == 0
            return {"key": key, "value": {"doubleValue": value if finite else _special(value)}}
        case str():
            return {"key": key, "value": {"stringValue": value}}


def _special(value: float) -> str:
    if value != value:
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
