"""Tool calls of an outside agent as events: read from a completion, answered by a later request.

Pure. The agent runs its tools itself, so a result is known once the agent sends it back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence, Set

from engine.core.rollout.outside_requests import ReadCall
from engine.core.tools.replies import refused
from engine.core.trajectory.events import Answered, Called
from engine.core.trajectory.state import State
from toolwright.ingress.limits import MOST_RESULT
from toolwright.types import CallOutcome


def called(attempt: str, turn: int, index: int, read: ReadCall) -> Iterator[Called | Answered]:
    """The events of a call that was read. An ill-formed call is answered at once."""
    call_id = f"{attempt}/{turn}/{index}"
    yield Called(
        call_id=call_id,
        turn=turn,
        index=index,
        action=json.dumps({"name": read.name, "arguments": read.arguments}),
        tool=read.name,
        arguments="" if read.invalid_reason else read.arguments,
        refused=bool(read.invalid_reason),
        given_id=read.id,
        dispatched_ns=time.monotonic_ns(),
    )
    if read.invalid_reason:
        yield Answered(call_id=call_id, outcome=refused(read.invalid_reason))


def answered(
    state: State, results: Sequence[tuple[str, str]], above: Set[int | None]
) -> list[Answered]:
    """The events of tool results, (id, text) each: one for each call, when its result first comes
    back.

    Samples of one request have the same ids of calls. above: turns whose calls come first; else the
    newest call counts.
    """
    events, open_calls = list[Answered](), list(state.open_calls)
    for given_id, text in results:
        found = [one for one in open_calls if one.given_id == given_id]
        if not found:
            continue
        call = next((one for one in found if one.turn in above), found[-1])
        open_calls.remove(call)
        kept = text[:MOST_RESULT]
        outcome = CallOutcome(observation=kept, valid=True, truncated=kept != text)
        now = time.monotonic_ns()
        events.append(Answered(call_id=call.call_id, outcome=outcome, result_ns=now))
    return events


def characters(state: State) -> int:
    """Number of characters of all calls and their results."""
    done = sum(len(one.action) + len(one.outcome.observation) for one in state.calls)
    return done + sum(len(one.action) for one in state.open_calls)
