"""When a session can be forked, and what its fork is; nothing here waits.

Invariants
- A fork begins while no call of its parent runs, and none of a tool without parallel calls begins
  until the fork stands or has failed.
- What the request for a fork leaves out is as in the parent. The tools are the parent's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from toolsvc.errors import RETRY_SECONDS, Reason, Refused
from toolsvc.host.open_session import OpenSession
from toolsvc.types import OpenRequest
from toolwright.types import BlobRef


def check_fork(parent: OpenSession, child: OpenRequest) -> None:
    """Raises Refused if the parent cannot be forked, or not now, or not into this child."""
    name = parent.info.session_id
    for entry in parent.entries:
        if not entry.tool.forks():
            raise Refused(
                Reason.NOT_SERVED,
                f"session {name} cannot be forked: {entry.tool.name} keeps a state that cannot be "
                "had a second time",
                subject=entry.tool.name,
                fix="open a new session and make its calls there",
            )
    wanted = parent.asked
    if child.tools and set(child.tools) != set(wanted):
        raise Refused(
            Reason.INVALID_REQUEST,
            f"a fork of session {name} has its tools, {', '.join(sorted(wanted))}, and no others",
            subject="tools",
            fix="leave the tools out",
        )
    _check_still(parent)


def completed(child: OpenRequest, parent: OpenSession) -> OpenRequest:
    """The child's request with what it leaves out taken from the parent."""
    blobs = tuple(
        BlobRef(sha256=sha256, media_type=media.media_type, size=len(media.data))
        for sha256, media in parent.info.blobs.items()
    )
    return replace(
        child,
        tools=parent.asked,
        metadata=child.metadata or parent.info.metadata,
        blobs=child.blobs or blobs,
    )


@contextmanager
def standing_still(parent: OpenSession) -> Iterator[None]:
    """Within the block no call of a tool without parallel calls begins. Raises Refused if one
    runs."""
    _check_still(parent)
    with ExitStack() as inside:
        for entry in parent.entries:
            if entry.turnstile.try_enter():
                inside.callback(entry.turnstile.leave)
        yield


def _check_still(parent: OpenSession) -> None:
    running = parent.ledger.in_flight()
    if running or any(entry.turnstile.busy for entry in parent.entries):
        name = parent.info.session_id
        raise Refused(
            Reason.SESSION_BUSY,
            f"session {name} is in the midst of a call",
            subject=name,
            retry_after=RETRY_SECONDS,
            fix="fork it when the call has ended",
        )
