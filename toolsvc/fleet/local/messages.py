"""The lines between the front and a worker, over the worker's standard input and output.

The front writes an `Assignment` first, then questions: `ASK_SESSIONS`, `ASK_METRICS`. The worker
answers each by a line of `Said`.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from toolsvc.edge.wire import LONGEST_ID
from toolsvc.fleet.hosts import Ready
from toolsvc.service_config import ServiceConfig

ASK_SESSIONS, ASK_METRICS = b"sessions\n", b"metrics\n"

_ESCAPED = 6
"""Most bytes that JSON needs for one character."""
LONGEST_LINE = 16 << 20
"""Maximum size of a line other than that of the sessions, in bytes; a page of metrics is far
smaller."""


def longest_line(config: ServiceConfig) -> int:
    """Bytes of a worker's longest line: the sessions, with ids that clients chose."""
    return LONGEST_LINE + config.max_sessions * LONGEST_ID * _ESCAPED


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def line(self) -> bytes:
        return self.model_dump_json(exclude_unset=True).encode() + b"\n"


class Assignment(_Line):
    """The worker's task."""

    config: ServiceConfig
    slot: int
    listen: str
    """Address of its own; port 0 = any free port."""
    advertise: str
    """Host name for clients; "" = as it listens."""
    link: str
    """Address where it answers the front."""
    front: str
    """Address where the front answers it."""
    token: str
    """Bearer token that both require there."""


class Said(_Line):
    """One field is set."""

    ready: Ready | None = None
    failed: str | None = None
    """One sentence: why it cannot start."""
    sessions: frozenset[str] | None = None
    """Ids of the sessions that it holds."""
    metrics: str | None = None
    """A page in Prometheus' text format."""
    closed: str | None = None
    """Id of a session that a client closed at the worker itself; said without a question."""
