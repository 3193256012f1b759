"""A second trajectory that begins as the first one did, up to the end of an observation.

The child's log refers to the parent's events instead of repeating them; its sessions are forks of
the parent's. So a fork costs neither tokens nor, where the service can fork, calls.

Invariants
- A fork is made between two turns: nobody's action is cut in two.
- The parent goes on as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.core.images.media import Media
from engine.core.time_limit import TimeLimit
from engine.core.tools.services import ToolServices
from engine.core.tools.tool_sessions import Environment
from engine.core.trajectory.events import Forked
from engine.core.trajectory.log import AttemptLog
from engine.errors import ForkRefused
from toolwright.types import Task


async def fork(
    tools: ToolServices,
    parent: AttemptLog,
    environment: Environment,
    attempt: str,
    task: Task,
    *,
    media: Sequence[Media] = (),
    clock: TimeLimit | None = None,
) -> tuple[AttemptLog, Environment]:
    """The child's log under the key `attempt`, and its sessions; a rollout goes on from both.

    media: of the images that the parent has seen; the child's log holds them too. clock: stands
    still while a service is away. ForkRefused inside a turn, after the end, or where a service
    cannot fork its session, or has no room for one.
    """
    state, length = parent.state, parent.length
    inside = state.acted or state.open_calls or state.partial
    if not state.opened or state.ended or inside:
        raise ForkRefused(f"{parent.attempt} is inside of a turn, or not running")
    forked = await tools.fork(environment, attempt, task, clock)
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
