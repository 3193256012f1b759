"""A second trajectory that begins like the first, up to the end of an observation.

The child's log refers to the parent's events instead of repeating them. Its sessions are forks of
the parent's. So a fork costs no tokens and, if the service can fork, no calls.

Invariants
- A fork is made between two turns: no action is cut in two.
- The parent goes on unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.core.images.media import Media
from engine.core.time_limit import TimeLimit
from engine.core.tools.services import ToolServices, ToolSessions
from engine.core.trajectory.events import Forked
from engine.core.trajectory.log import AttemptLog
from engine.errors import ForkRefused
from toolwright.types import Task


async def fork(
    tools: ToolServices,
    parent: AttemptLog,
    tool_sessions: ToolSessions,
    attempt: str,
    task: Task,
    *,
    media: Sequence[Media] = (),
    clock: TimeLimit | None = None,
) -> tuple[AttemptLog, ToolSessions]:
    """The child's log under the key `attempt`, and its sessions. A rollout goes on from both.

    media: images that the parent has shown; the child's log holds them too. clock: stands still
    while a service is unreachable. Raises ForkRefused inside a turn, after the end, and if a
    service cannot fork its session or is full.
    """
    state, length = parent.state, parent.length
    inside = state.acted or state.open_calls or state.partial
    if not state.opened or state.ended or inside:
        raise ForkRefused(f"{parent.attempt} is inside a turn, or not running")
    forked = await tools.fork(tool_sessions, attempt, task, clock)
    child = AttemptLog(attempt, parent.keeper, start=state)
    child.append(
        Forked(
            parent=parent.attempt,
            events=length,
            offset=len(state.token_ids),
            sessions=forked.refs,
        ),
        media,
    )
    return child, forked
