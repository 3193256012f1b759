"""A second trajectory that begins as the first one did, up to the end of an observation.

The child's log refers to the parent's events instead of repeating them; its sessions are forks of
the parent's. So a fork costs neither tokens nor, where the service can fork, calls.

Invariants
- A fork is made between two turns: nobody's action is cut in two.
- The parent goes on as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.errors import ForkRefused
from engine.rollout.events import AnyEvent, Forked
from engine.rollout.log import AttemptLog, Keeper
from engine.rollout.state import LogError
from engine.tools.environment import Environment
from engine.tools.services import ToolServices
from toolwright.types import Task


async def fork(
    tools: ToolServices,
    parent: AttemptLog,
    environment: Environment,
    attempt: str,
    task: Task,
    keeper: Keeper,
) -> AttemptLog:
    """The child's log under the key `attempt`; a rollout goes on from it. ForkRefused inside a
    turn, after the end, or where a service cannot fork its session."""
    state, length = parent.state, parent.length
    if not state.opened or state.ended or state.acted or state.open_calls:
        raise ForkRefused(f"{parent.attempt} is inside of a turn, or not running")
    forked = await tools.fork(environment, attempt, task)
    child = AttemptLog(attempt, keeper, start=state)
    child.append(
        Forked(
            parent=parent.attempt,
            events=length,
            offset=len(state.token_ids),
            sessions=forked.refs,
        )
    )
    return child


def whole_log(events: Sequence[AnyEvent], logs: Mapping[str, Sequence[AnyEvent]]) -> list[AnyEvent]:
    """All events of a log: first those of its parent that it refers to, then its own. LogError
    where the parent's are not there."""
    if not events or not isinstance(events[0], Forked):
        return list(events)
    first = events[0]
    parent = logs.get(first.parent)
    if parent is None or len(parent) < first.events:
        raise LogError(f"the log of {first.parent} is not there as far as it was forked")
    return [*whole_log(parent[: first.events], logs), *events]
