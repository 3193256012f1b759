"""The calls of a trajectory, as its protocol reads them, in canonical form; pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from engine.core.protocols import Protocol
from engine.core.rollout.decide import spoken_of
from engine.core.trajectory.state import State
from engine.types import Calls, Codec, Decision, View
from toolwright.json_data import canonical
from toolwright.types import Task

CanonicalCall = tuple[str, str]
"""(name, arguments as JSON with sorted keys)."""


def decision_of(
    state: State, turn: int, task: Task, protocol: Protocol, codec: Codec
) -> Decision | None:
    """The protocol's decision on an action; None for one that was cut before any stop."""
    action = state.actions[turn]
    if action.stop is None:
        return None
    view = View(
        task=task,
        turn=turn,
        actions=tuple(one.text for one in state.actions[:turn]),
        calls=tuple(call for call in state.calls if call.turn < turn),
        events=state.events,
        tools=state.tools,
    )
    text = spoken_of(state, turn, protocol, codec)
    return protocol.decide(text, action.stop, view, codec)


def canonical_calls(
    state: State, task: Task, protocol: Protocol, codec: Codec
) -> list[CanonicalCall]:
    """All calls in order, the failed ones included.

    A call with unreadable arguments has the text of its action in their place.
    """
    found: list[CanonicalCall] = []
    for turn in range(len(state.actions)):
        made = state.calls_of(turn)
        if not made:
            continue
        decision = decision_of(state, turn, task, protocol, codec)
        read = decision.calls if isinstance(decision, Calls) else ()
        for record in made:
            call = read[record.index] if record.index < len(read) else None
            if call is None or call.arguments is None:
                found.append((record.outcome.tool or record.tool, record.action.strip()))
            else:
                found.append((call.tool or record.tool, canonical(call.arguments)))
    return found


def mark_of_calls(task: Task, calls: Sequence[CanonicalCall]) -> str:
    """A hash of the question and its calls in order (MTR 4.4).

    Thoughts and results play no part. A question is the task's messages or prompt; two tasks may
    have the same one.
    """
    digest = hashlib.sha256(b"calls")
    question = canonical([list(task.messages), task.prompt])
    for text in (question, *(part for call in calls for part in call)):
        data = text.encode(errors="surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:24]
