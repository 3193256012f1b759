"""An OTLP/HTTP collector that remembers, and ways in which one is no help."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiohttp import web
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan

from tests.support.web import serving

_IDS = ("traceId", "spanId", "parentSpanId")


def decoded(body: dict[str, Any]) -> ExportTraceServiceRequest:
    """The message of its JSON, where ids are hex as OTLP has them. ParseError for anything that
    OpenTelemetry's own contract does not know."""
    return json_format.ParseDict(_ids_as_protobuf(body), ExportTraceServiceRequest())


def spans_by_service(
    requests: list[ExportTraceServiceRequest],
) -> list[tuple[str, OtlpSpan]]:
    """(service.name, span) of all of them, in the order of their arrival."""
    return [
        (resource.resource.attributes[0].value.string_value, span)
        for request in requests
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


class FakeCollector:
    """Takes traces at /v1/traces; `requests` are those that came, decoded."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[Mapping[str, str]] = []
        """Of each request, whatever the case of their names."""
        self.url = ""

    @property
    def spans(self) -> list[tuple[str, OtlpSpan]]:
        return spans_by_service(self.requests)

    @contextlib.asynccontextmanager
    async def serving(self) -> Any:
        async def take(request: web.Request) -> web.Response:
            assert request.content_type == "application/json"
            self.headers.append(request.headers)
            self.requests.append(decoded(await request.json()))
            return web.json_response({})

        route = web.post("/v1/traces", take)
        async with serving(route, client_max_size=64 << 20) as port:
            self.url = f"http://127.0.0.1:{port}"
            yield self


@contextlib.contextmanager
def answering(status: int | Callable[[], int], **headers: str) -> Iterator[tuple[str, list[int]]]:
    """(address, lengths of the bodies that came) of one that answers with a status."""
    came: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.append(len(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status if isinstance(status, int) else status())
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def do_GET(self) -> None:
            raise AssertionError("a redirect was followed")

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", came
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def speaking(speech: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of one that does this with each connection: says nothing, drips, floods."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with contextlib.suppress(OSError), connection:
                    speech(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.close()


def _ids_as_protobuf(value: Any) -> Any:
    """protobuf's JSON has bytes in base64."""
    if isinstance(value, list):
        return [_ids_as_protobuf(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: base64.b64encode(bytes.fromhex(one)).decode() if key in _IDS else _ids_as_protobuf(one)
        for key, one in value.items()
    }
