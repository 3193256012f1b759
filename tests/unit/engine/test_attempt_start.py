"""Which sessions a later life goes on in: those whose calls its log knows, and no others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

import pytest

from engine.core.rollout.assignment import Assignment
from engine.core.rollout.attempt_start import attempt_sessions
from engine.core.tools.services import ToolServices
from engine.core.trajectory.log import AttemptLog
from engine.errors import SessionLost
from engine.types import ToolSpec
from tests.support.written_logs import act, answer, append, call, opened
from toolwright.types import SamplingParams, Task

pytestmark = pytest.mark.quick

KEEPS = ToolSpec(name="python")
KEEPS_NOTHING = ToolSpec(name="search", stateful=False)
ASSIGNMENT = Assignment(
    trajectory_id="g0-0", group_id="g0", index=0, task=Task(id="t"), sampling=SamplingParams()
)


class Services:
    """The tool services of an engine, of which an earlier life had a session; `ran`: ids of the
    calls that have run there, None where it is lost."""

    def __init__(self, ran: Collection[str] | None) -> None:
        self._ran = ran
        self.opened: list[str] = []
        self.adopted: list[str] = []
        self.closed = 0

    def close(self) -> None:
        self.closed += 1

    async def open_session(self, session_id: str, *_: object, fence: int) -> Services:
        self.opened.append(session_id)
        return self

    async def adopt(
        self, session_id: str, _task: Task, _refs: Sequence[object], *, fence: int
    ) -> tuple[Services, frozenset[str]]:
        if self._ran is None:
            raise SessionLost("it is gone")
        self.adopted.append(session_id)
        return self, frozenset(self._ran)


def after_one_turn(tool: ToolSpec) -> AttemptLog:
    """A log with one whole turn, and nothing of the next."""
    log = opened(tools=(tool,))
    act(log, "act", "</python>")
    answer(log, call(log))
    append(log, last=True)
    return log


async def sessions(services: Services, log: AttemptLog, replaced: int = 0) -> None:
    await attempt_sessions(
        cast(ToolServices, cast(Any, services)), ASSIGNMENT, log, replaced=replaced
    )


@pytest.mark.parametrize("ran", [(), ("g0-0/b1r0a0/0/0",), ("g0-0/b1r0a0/0/0", "g0-0/b1r0a0/0/1")])
async def test_a_session_that_ran_what_the_log_knows_is_gone_on_in(ran: Sequence[str]) -> None:
    services = Services(ran)
    await sessions(services, after_one_turn(KEEPS))
    assert (services.adopted, services.opened, services.closed) == (["g0-0/b1r0a0"], [], 0)


@pytest.mark.parametrize("ran", ["g0-0/b1r0a0/1/0", "g0-0/b1r0a0/2/0", "g0-0/b1r0a0/x/0"])
async def test_a_session_that_ran_more_is_closed_and_lost(ran: str) -> None:
    """The action that made the call was not durable: another one would be sampled in its place."""
    services = Services((f"{ASSIGNMENT.trajectory_id}/b1r0a0/0/0", ran))
    with pytest.raises(SessionLost, match="which the log does not know"):
        await sessions(services, after_one_turn(KEEPS))
    assert (services.opened, services.closed) == ([], 1)


async def test_a_call_of_the_action_in_the_log_is_known_before_it_is_logged() -> None:
    log = after_one_turn(KEEPS)
    act(log, "act", "</python>")
    services = Services(("g0-0/b1r0a0/0/0", "g0-0/b1r0a0/1/0"))
    await sessions(services, log)
    assert services.adopted == ["g0-0/b1r0a0"]


async def test_a_lost_session_is_replaced_only_if_it_held_no_state() -> None:
    services = Services(None)
    with pytest.raises(SessionLost, match="it is gone"):
        await sessions(services, after_one_turn(KEEPS))
    assert services.opened == []
    await sessions(services, after_one_turn(KEEPS_NOTHING))
    assert services.opened == ["g0-0/b1r0a0"]


async def test_every_replacement_has_an_id_of_its_own() -> None:
    services = Services(())
    await sessions(services, AttemptLog("g0-0/b1r0a0"))
    for replaced in (1, 2):
        await sessions(services, after_one_turn(KEEPS_NOTHING), replaced)
    assert services.opened == ["g0-0/b1r0a0", "g0-0/b1r0a0~1", "g0-0/b1r0a0~2"]
