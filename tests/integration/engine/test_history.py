"""A real run of two lives, as its sampler, tool service and learner saw it, breaks no invariant."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bench.history.events import (
    Acknowledged,
    AnyEvent,
    Effect,
    Finished,
    History,
    LifeBegan,
    LifeEnded,
    Offered,
    Planned,
    Published,
    Publishing,
    Sampled,
    SessionClosed,
    SessionOpened,
    Trained,
)
from bench.history.members import member_of
from bench.history.run_folder import (
    evaluations,
    positions,
    stored_hashes,
    surviving,
)
from bench.history.stored import read_history, write_history
from bench.history.validator import unjudged, violations
from bench.scripted import ScriptRequest
from tests.integration.engine.conftest import MakeWorld, World
from tests.support.dialogue import ANSWER, CALL, by_turn
from tests.support.engines import Leased, Running
from tests.support.evaluations import evaluated, lane, suite, v
from tests.support.tools import ToolDouble, add_up
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import WeightVersion, ids

pytestmark = pytest.mark.quick

STEPS = 4
RUN = {
    "steps": STEPS,
    "groups_per_step": 1,
    "group_size": 2,
    "max_staleness": 1,
    "correction": "decoupled",
}
UNSEEN = {
    "admission_keeps_the_bound", "no_dispatch_after_a_life", "one_life_an_attempt",
    "no_dispatch_after_close", "finishes_after_faults", "effects_are_recorded",
    "turns_are_bounded", "logs_are_prefixes", "events_become_durable", "one_open_log",
    "a_full_disk_ends_by_itself", "a_full_disk_takes_acknowledgements",
    "delivered_groups_leave_no_session",
    "sessions_in_flight_stay_open", "attempts_end_for_a_reason",
    "attempts_are_given_up_once", "masks_stay", "scored_once",
    "a_repeated_publish_is_accepted", "superseded_learners_are_refused",
    "superseded_learners_move_no_sampler", "left_requests_are_aborted",
    "no_call_below_a_fence",
}  # fmt: skip
"""Invariants that need faults, or what only the simulation can see."""


class Witness(ToolDouble):
    """The tool service and the sampler's script; writes what both see."""

    def __init__(self) -> None:
        super().__init__(run=self._ran)
        self.history: History = []
        self.here: World
        self._reply: Callable[[ScriptRequest], Iterable[int]]

    def add(self, *events: AnyEvent) -> None:
        now = time.monotonic()
        self.history += [replace(event, at=now) for event in events]

    def script(self, request: ScriptRequest) -> Iterable[int]:
        reply = by_turn(self.here.codec, [CALL, ANSWER])(request)
        version = WeightVersion.parse(self.here.sampler.scheduler.weight_version)
        self.add(
            Sampled(
                at=0, attempt=request.conversation, server="s0", prompt=ids(request.input_ids),
                token_ids=ids(reply), version=version, exact=False, began=time.monotonic(),
            )
        )  # fmt: skip
        return reply

    def _ran(self, request: pb.CallToolRequest) -> pb.CallResult:
        result = add_up(request)
        shown = f"<result> {result.observation[0].text}</result>"
        self.add(
            Effect(
                at=0, session=request.session_id, call_id=request.call_id, action=request.action,
                answer=ids(self.here.codec.encode(shown)),
            )
        )  # fmt: skip
        return result

    async def OpenSession(self, request: pb.OpenSessionRequest, context: Any) -> Any:
        self.add(SessionOpened(at=0, session=request.session_id))
        return await super().OpenSession(request, context)

    async def CloseSession(self, request: pb.CloseSessionRequest, context: Any) -> Any:
        self.add(SessionClosed(at=0, session=request.session_id, by_engine=True))
        return await super().CloseSession(request, context)

    def offer(self, group: Leased, version: WeightVersion, stored: str) -> None:
        self.add(
            Offered(
                at=0, sequence=group.info.sequence_number, group=group.info.id,
                hash=group.info.content_hash, bytes_hash=group.hash, version=version,
                stored_hash=stored,
                members=tuple(member_of(one) for one in group.members),
            )
        )  # fmt: skip


async def test_a_run_of_two_lives_breaks_no_invariant(world: MakeWorld, tmp_path: Path) -> None:
    witness = Witness()
    here = await world(
        script=witness.script,
        tools=witness,
        run=RUN,
        engine={**lane(suite("held", n=3, when="ends")), "history": "all"},
    )
    witness.here = here
    witness.add(Planned(at=0, eta=1, batch=2, group_size=2, steps=STEPS), LifeBegan(at=0, life=0))
    async with here.engine() as run:
        version = await run.learner.version()
        await evaluated(run, 1)
        await step(witness, run, version, 1)
        await run.learner.lease(v(version, 1), after=1)
    witness.add(LifeEnded(at=0, life=0, killed=False), LifeBegan(at=0, life=1))
    async with here.engine() as run:
        for number in range(2, STEPS + 1):
            await step(witness, run, version, number)
        await evaluated(run, 2)
        folder = run.folder
    witness.add(LifeEnded(at=0, life=1, killed=False))
    witness.add(Finished(at=0, complete=True, sessions=len(witness.live)))
    now = time.monotonic()
    history = [
        *witness.history,
        *positions(folder, at=now, trained=surviving(witness.history)),
        *evaluations(folder, at=now),
    ]
    assert [str(one) for one in violations(history)] == []
    assert set(unjudged(history)) == UNSEEN
    write_history(tmp_path / "history.jsonl", history)
    assert violations(read_history(tmp_path / "history.jsonl")) == ()
    broken = [
        replace(one, answer=ids([1])) if isinstance(one, Effect) and "/g" in one.session else one
        for one in history
    ]
    assert {one.invariant.name for one in violations(broken)} == {"tool_ids_are_answers"}


async def step(witness: Witness, run: Running, version: WeightVersion, number: int) -> None:
    """Leases a group twice, trains on it, publishes, and acknowledges."""
    now = v(version, number - 1)
    stored = {}
    for _ in range(2):
        (group,) = await run.learner.lease(now, after=number - 1)
        stored = stored_hashes(run.folder)
        witness.offer(group, now, stored[group.info.sequence_number])
    after = v(version, number)
    witness.add(
        Trained(at=0, lineage=version.lineage, step=number, sequences=(number,)),
        Publishing(at=0, version=after),
    )
    await run.learner.publish(after, witness.here.weights(str(number)))
    witness.add(Published(at=0, version=after))
    await run.learner.acknowledge(number)
    witness.add(Acknowledged(at=0, mark=number))
