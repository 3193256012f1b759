"""Logs of attempts that are written by hand, event by event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.core.trajectory.events import Acted, Answered, Appended, Called, Opened
from engine.core.trajectory.log import AttemptLog
from engine.types import SessionRef, ToolSpec
from toolwright.types import (
    Author,
    CallOutcome,
    FinishKind,
    FinishReason,
    SamplingParams,
    WeightVersion,
    floats,
    ids,
)

VERSION = WeightVersion(lineage="a", step=1)
STOP = FinishReason(kind=FinishKind.STOP)
LENGTH = FinishReason(kind=FinishKind.LENGTH)


def opened(
    prompt: Sequence[int] = (1, 2), tools: Sequence[ToolSpec] = (), attempt: str = "g0-0/b1r0a0"
) -> AttemptLog:
    """A log whose sessions are open: one session, named `tools`."""
    log = AttemptLog(attempt)
    session = SessionRef(service="tools", session_id=attempt, endpoint="e", tools=tuple(tools))
    log.append(Opened(sessions=(session,), prompt=ids(prompt), sampling=SamplingParams()))
    return log


def act(
    log: AttemptLog,
    text: str = "",
    stop: str | None = None,
    *,
    token_ids: Sequence[int] = (3, 4),
    versions: Sequence[tuple[WeightVersion, int]] = (),
    finish: FinishReason | None = None,
) -> None:
    """The policy writes `text`, which ends on `stop`."""
    log.append(
        Acted(
            token_ids=ids(token_ids),
            logprobs=floats([-0.5] * len(token_ids)),
            versions=tuple(versions) or (((VERSION, len(token_ids)),) if token_ids else ()),
            finish=finish or (STOP if stop else LENGTH),
            text=text,
            stop=stop,
        )
    )


def call(log: AttemptLog, index: int = 0, *, tool: str = "python") -> str:
    """A call goes out; its id."""
    turn = log.state.turn
    call_id = f"{log.attempt}/{turn}/{index}"
    log.append(Called(call_id=call_id, turn=turn, index=index, action="act", tool=tool))
    return call_id


def answer(log: AttemptLog, call_id: str, observation: str = "2", **outcome: object) -> None:
    """A call has its outcome."""
    given: dict[str, Any] = {"observation": observation, "valid": True, **outcome}
    made = CallOutcome(**given)
    log.append(Answered(call_id=call_id, outcome=made))


def append(log: AttemptLog, token_ids: Sequence[int] = (5,), **more: object) -> None:
    """The environment speaks."""
    log.append(Appended(token_ids=ids(token_ids), author=Author.TOOL, **more))  # type: ignore[arg-type]
