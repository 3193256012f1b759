"""The page for Prometheus of a process that has no web server: a few threads, on loopback.

Learner and memory use it. The engine serves its page on its own event loop. A tool service's page
requires a token if other machines can reach it.

Invariants
- It listens on 127.0.0.1 alone. For other machines the operator puts a proxy in front.
- It answers `MOST_READERS` connections at once and closes a further one unread. It closes a
  connection that is silent for `IDLE_SECONDS`. So connections cost eight threads at most.
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
    """Serves `/metrics` within the block and yields the port. port: 0 = any free port. Raises
    OSError if the port is taken."""
    server = _Server((HOST, port), registry)
    thread = start_daemon(server.serve_forever, "metrics")
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def port_fault(key: str, port: int) -> str:
    """The error message for a taken port. key: the recipe's key that sets the port."""
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
        """A client that hangs up is not an error: no traceback on standard error."""


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
        """A scrape is not logged."""
