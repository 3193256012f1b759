"""The page for Prometheus of a process that has no web server: a few threads, on loopback.

Learner and memory have it. (The engine's page is on its own event loop, and a tool service's asks
for a token where other machines may see it.)

Invariants
- It listens on 127.0.0.1 alone: other machines reach it by what its operator puts in front.
- It answers `MOST_READERS` connections at once and closes a further one unread. One that says
  nothing for `IDLE_SECONDS` is closed. So connections cost the process eight threads at most.
- Other sites' pages get no answer (`toolwright.rpc.http_rule`).
- It ends with its block, and never keeps the process alive.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from toolwright.process.daemon import start_daemon
from toolwright.process.holder import holder_of
from toolwright.rpc.auth import Tokens
from toolwright.rpc.http_rule import HttpRule

HOST = "127.0.0.1"
PATH = "/metrics"
MOST_READERS = 8
IDLE_SECONDS = 5.0
_RULE = HttpRule(Tokens())


@contextlib.contextmanager
def threaded_page(registry: CollectorRegistry, port: int) -> Iterator[int]:
    """`/metrics` within the block, on a free port where `port` is 0; gives the port. OSError where
    it is taken."""
    server = _Server((HOST, port), registry)
    thread = start_daemon(server.serve_forever, "metrics")
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def port_fault(key: str, port: int) -> str:
    """The sentence for a port that is taken, set by the recipe's `key`."""
    who = holder_of(port)
    return f"{key}: port {port} is in use{f' by {who}' * bool(who)}; choose another or 0 for none"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 4 * MOST_READERS

    def __init__(self, address: tuple[str, int], registry: CollectorRegistry) -> None:
        self.registry = registry
        self._places = threading.BoundedSemaphore(MOST_READERS)
        super().__init__(address, _Reader)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Somebody hung up: nobody's fault here, and no traceback on standard error."""


class _Reader(BaseHTTPRequestHandler):
    timeout: ClassVar[float] = IDLE_SECONDS
    server: _Server
    connection: socket.socket

    def do_GET(self) -> None:
        refusal = _RULE.refusal(self.headers)
        if refusal is not None:
            self.send_error(refusal.status, explain=refusal.sentence)
            return
        if self.path.partition("?")[0] != PATH:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        page = generate_latest(self.server.registry)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE_LATEST)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: Any) -> None:
        """A scrape is no news."""
