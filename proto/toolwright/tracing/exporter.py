"""Sends spans to a collector from a thread of its own, so the caller never waits.

OpenTelemetry's SDK does not fit: it draws ids and opens and closes spans as the program runs. Ours
are derived from a record afterwards. Its exporter also follows redirects, reads answers of any
size, and does not count dropped spans.

Invariants
- `offer` puts spans into a queue of at most `MOST_WAITING` and returns. Without room the spans are
  dropped and counted. It takes microseconds, whatever the collector does.
- A request to an unreachable, busy or broken collector is retried with back-off. Meanwhile the
  queue fills. Spans that a collector refuses for good are dropped and counted.
- A request has `DEADLINE_S` in all once its host's name is resolved, however slowly bytes drip. Of
  an answer the first line is read, `LONGEST_LINE` bytes at most; nothing is followed.
- Every span offered is in the end sent, dropped or refused.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector as MetricCollector

from toolwright.process.backoff import Backoff
from toolwright.process.daemon import start_daemon
from toolwright.tracing import otlp
from toolwright.tracing.settings import Collector
from toolwright.tracing.spans import Span

MOST_WAITING = 20_000
"""Most spans in the queue, about a kilobyte each."""
AT_ONCE = 128
"""Most spans of one request: encoding them takes less than a millisecond."""
DEADLINE_S = 5.0
BACKOFF = Backoff(1.0, 30.0, jitter=False)
GATHER_S = 0.5
"""Seconds between the first waiting span and its request, for further spans to arrive."""
LAST_S = 2.0
"""Seconds for the spans that wait when the process ends."""
LONGEST_LINE = 4096

log = structlog.get_logger("traces")


class Exporter(MetricCollector):
    """`offer` from any thread; `close` once. Counts itself for Prometheus."""

    def __init__(self, collector: Collector, *, process: str) -> None:
        """process: begins the names of its metrics: engine, toolsvc, learner."""
        self._collector = collector
        self._prefix = f"toolwright_{process}_spans"
        self._waiting: deque[Span] = deque()
        self._some = threading.Condition()
        self._closing = False
        self._until = float("inf")
        self._away = False
        self._context = ssl.create_default_context() if collector.secure else None
        self.sent = 0
        self.dropped = 0
        """Spans that found no room, or that waited at the end."""
        self.refused = 0
        """Spans that the collector refused for good."""
        self._thread = start_daemon(self._run, "traces")

    @property
    def waiting(self) -> int:
        """Spans in the queue."""
        return len(self._waiting)

    def offer(self, spans: Sequence[Span]) -> None:
        """Queues all spans, or drops all."""
        with self._some:
            if self._closing or len(self._waiting) + len(spans) > MOST_WAITING:
                self.dropped += len(spans)
                return
            self._waiting.extend(spans)
            self._some.notify()

    def close(self) -> None:
        """Sends what waits, for `LAST_S` at most; the rest is dropped."""
        with self._some:
            self._closing = True
            self._until = time.monotonic() + LAST_S
            self._some.notify()
        self._thread.join(LAST_S + DEADLINE_S)
        with self._some:
            self.dropped += len(self._waiting)
            self._waiting.clear()

    def collect(self) -> Iterator[Metric]:
        """For Prometheus; called in its thread."""
        spans = CounterMetricFamily(
            self._prefix, "spans by what became of them", labels=["outcome"]
        )
        for outcome in ("sent", "dropped", "refused"):
            spans.add_metric([outcome], getattr(self, outcome))
        yield spans
        yield GaugeMetricFamily(f"{self._prefix}_waiting", "spans in the queue", self.waiting)

    def _run(self) -> None:
        failures = 0
        while self._wait(BACKOFF.pause(failures - 1) if failures else 0.0):
            with self._some:
                batch = list(islice(self._waiting, AT_ONCE))
            try:
                status = self._post(json.dumps(otlp.request(batch)).encode())
            except (OSError, ValueError) as error:
                failures += 1
                self._failed(str(error) or type(error).__name__)
                continue
            if status == 429 or status >= 500:
                failures += 1
                self._failed(f"it answered {status}")
                continue
            self._done(len(batch), well=200 <= status < 300, status=status)
            failures = 0

    def _wait(self, pause: float) -> bool:
        """Waits until there are spans to send and `pause` is over. False at the end."""
        with self._some:
            self._some.wait_for(lambda: self._waiting or self._closing)
            enough = AT_ONCE if not pause else MOST_WAITING + 1
            self._some.wait_for(
                lambda: self._closing or len(self._waiting) >= enough, max(pause, GATHER_S)
            )
            if pause and self._closing:  # one more try, soon
                self._some.wait_for(lambda: False, 0.1)
            return bool(self._waiting) and time.monotonic() < self._until

    def _done(self, count: int, *, well: bool, status: int) -> None:
        with self._some:
            for _ in range(count):
                self._waiting.popleft()
            if well:
                self.sent += count
            else:
                self.refused += count
        if not well and not self._away:
            log.warning("spans_refused", collector=str(self._collector), status=status)
        elif well and self._away:
            log.info("collector_back", collector=str(self._collector), dropped=self.dropped)
        self._away = not well

    def _failed(self, why: str) -> None:
        """Logs the first of several failures."""
        if not self._away:
            log.warning("collector_away", collector=str(self._collector), why=why)
        self._away = True

    def _post(self, body: bytes) -> int:
        """The status of the answer. Raises OSError or ValueError without an answer in time."""
        collector, deadline = self._collector, time.monotonic() + DEADLINE_S
        head = "".join(
            f"{name}: {value}\r\n"
            for name, value in {
                "Host": f"{collector.host}:{collector.port}",
                "User-Agent": "toolwright",
                "Content-Type": "application/json",
                "Content-Length": str(len(body)),
                "Connection": "close",
                **collector.headers,
            }.items()
        )
        request = f"POST {collector.path} HTTP/1.1\r\n{head}\r\n".encode() + body
        with socket.create_connection((collector.host, collector.port), DEADLINE_S) as plain:
            plain.settimeout(_left(deadline))
            connection = plain
            if self._context is not None:
                connection = self._context.wrap_socket(plain, server_hostname=collector.host)
            connection.settimeout(_left(deadline))
            connection.sendall(request)
            line = b""
            while b"\n" not in line and len(line) < LONGEST_LINE:
                connection.settimeout(_left(deadline))
                piece = connection.recv(LONGEST_LINE - len(line))
                if not piece:
                    break
                line += piece
        words = line.partition(b"\n")[0].split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise ValueError("its answer is not HTTP")
        return int(words[1][:4])


def _left(deadline: float) -> float:
    """Seconds until the deadline. Raises TimeoutError after it."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError(f"no answer within {DEADLINE_S:g} s")
    return left
