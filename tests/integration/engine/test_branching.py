"""ARPO: where the policy grows uncertain after an observation, a trajectory parts in two.

The scripted policy counts in its session: x is 5, then 6, then 7, then it answers. Its top
log-probs are sharp everywhere but behind the second observation. So with a threshold of 0 and a
heavy weight a trajectory branches there and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from bench.scripted import Break, Faults, ScriptRequest, Timing, Token
from engine.core.rewards.rewards import Rewards
from engine.offline.inspect.replay import replay
from engine.offline.inspect.state import trajectory_state
from learner.config.objective import Advantage, Credit
from tests.integration.engine.conftest import MakeWorld, World
from tests.support.dialogue import ANSWER, said
from tests.support.tools import PYTHON, ToolDouble, broken, session_lost, text
from tests.support.waiting import until
from tests.unit.learner.records import credited
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError, answers_errors
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import Author, Event, Group, Trajectory
from toolwright.types import Sequence as TokenSequence

pytestmark = pytest.mark.quick

SURE = ((0, -1e-6),)
TORN = tuple((token, math.log(0.25)) for token in range(4))
BRANCHING = {"init": 1, "weight": 1000.0, "threshold": 0.0, "tokens": 3, "top_k": 4}
RUN = {"steps": 1, "groups_per_step": 1, "group_size": 4}
SMALL = ("--ready", "2", "--shards", "1", "--memory-mib", "192")
COUNTING = ["x = 5", "x += 1", "x += 1"]


def actions(codes: Sequence[str]) -> list[str]:
    return [*(f"<python>{code}\nprint(x)</python>" for code in codes), ANSWER]


def counting(here: World, codes: Sequence[str] = COUNTING, *, torn: int = 2) -> None:
    """The policy says `codes` one after the other; it is uncertain behind `torn` observations."""
    replies = actions(codes)

    def script(request: ScriptRequest) -> Iterator[Token]:
        asked = here.codec.decode(request.input_ids)
        turn = asked.count("</result>")
        reply = replies[min(turn, len(replies) - 1)]
        for token in here.codec.encode(reply)[said(here.codec, asked, reply) :]:
            yield Token(token, -0.5, TORN if turn == torn else SURE)

    here.sampler._script = script


class Forking(ToolDouble):
    """A tool that tells 5 and one more at each call of a session, and forks where it `can`: `fork`
    says what comes of it."""

    def __init__(self, fork: Callable[[], None] = lambda: None, *, can: bool = True) -> None:
        tool = pb.ToolDescriptor()
        tool.CopyFrom(PYTHON)
        tool.capabilities.fork = can
        super().__init__(self._count, tools=[tool])
        self.begun: dict[str, list[str]] = {}
        self.forks: list[pb.ForkSessionRequest] = []
        self._fork = fork

    def _count(self, request: pb.CallToolRequest) -> pb.CallResult:
        begun = self.begun.setdefault(request.session_id, [])
        begun.append(request.call_id)
        return text(str(4 + len(begun)))

    async def GetSession(
        self, request: pb.GetSessionRequest, context: Any
    ) -> pb.GetSessionResponse:
        return pb.GetSessionResponse(
            tools=self.tools, call_ids=self.begun.get(request.session_id, [])
        )

    @answers_errors
    async def ForkSession(
        self, request: pb.ForkSessionRequest, context: Any
    ) -> pb.ForkSessionResponse:
        self.forks.append(request)
        self._fork()
        child = request.open.session_id
        self.begun[child] = list(self.begun[request.session_id])
        self.owners[child] = request.open.owner
        return pb.ForkSessionResponse(
            session=pb.OpenSessionResponse(session_id=child, tools=self.tools)
        )


async def rolled_out(here: World, *overrides: str, groups: int = 1) -> list[tuple[Trajectory, ...]]:
    async with here.engine(*overrides) as run:
        found = await run.learner.lease(count=groups)
        return [one.members for one in found]


def notes(trajectory: Trajectory, kind: str = "branching") -> list[Event]:
    return [event for event in trajectory.events if event.kind == kind]


def ids_of(sequence: TokenSequence) -> list[int]:
    return list(sequence.token_ids)


def observations(trajectory: Trajectory) -> list[str]:
    return [call.outcome.observation.strip() for call in trajectory.calls]


async def test_a_trajectory_parts_where_it_grew_uncertain(world: MakeWorld) -> None:
    """With the real python service: a branch that had another session would count otherwise."""
    here = await world(run=RUN, task={"branching": BRANCHING}, engine={"history": "all"})
    here.tables["tools"] = {"python": {"serve": ["python", *SMALL], "run_limit_s": 30.0}}
    here.rewards("return float(trajectory.index)")
    counting(here)
    ((first, *others),) = await rolled_out(here)

    # As many as were asked for: one that parted, its branch, and two that began anew.
    (branch,) = [one for one in others if one.sequences[0].parent]
    restarted = [one for one in others if one is not branch]
    assert len(restarted) == 2
    assert all(observations(one) == ["5", "6", "7"] for one in (first, *others))

    # It parted at the end of the second observation, where the entropy had risen.
    (whole,), (part,) = first.sequences, branch.sequences
    seen = [s for s in whole.segments if s.author is not Author.MODEL]
    offset = sum(len(s.token_ids) for s in whole.segments[: whole.segments.index(seen[2]) + 1])
    assert (part.parent, part.fork_offset) == (whole.id, offset)
    assert ids_of(part)[:offset] == ids_of(whole)[:offset]
    assert part.segments[: whole.segments.index(seen[2]) + 1] == whole.segments[:5]
    looked = {note.turn: note.data for note in notes(first)}
    assert sorted(looked) == [0, 1, 2, 3]
    most = 3 * math.log(4) / math.log(here.codec.vocab_size)
    assert [looked[turn]["entropy"] for turn in range(4)] == pytest.approx(
        [0, 0, most, 0], abs=1e-4
    )
    assert [looked[turn].get("wanted") for turn in range(4)] == [None, 0, 1, 0]
    # The branch has the looks of its parent up to the fork, and looks at later turns itself.
    assert notes(branch)[:3] == notes(first)[:3]
    # What was full by the time they began had no look, and no log-probs were asked for.
    assert all(not notes(one) for one in restarted)
    asked = [one.body for one in here.sampler.requests if one.body.get("top_logprobs_num")]
    assert len(asked) == len(notes(first)) + len(notes(branch)) - 3
    assert {one["top_logprobs_num"] for one in asked} == {4}

    # The record is one that the log folds to, and `engine inspect` shows the whole of a branch.
    rewards = Rewards("./my_reward.py:score", here.folder, per_group=False, seconds=20)
    done = await replay(here.folder / "run", {"": rewards}, here.folder)
    assert (done.trajectories, done.differences) == (4, [])
    shown = trajectory_state(here.folder / "run", branch.id)["timeline"]
    assert sum(one["kind"] == "call" for one in shown) == 3

    # Hard attribution: what both wrote has the mean of their advantages.
    group = Group(id=first.group_id, trajectories=(first, *others))
    soft = credited([group], Advantage(std="none"))
    hard = credited([group], Advantage(std="none"), Credit(branches="hard"))
    shared = sum(len(s.token_ids) for s in whole.segments[:5] if s.author is Author.MODEL)
    mean = (soft[first.id][0] + soft[branch.id][0]) / 2
    for one in (first, branch):
        assert hard[one.id][:shared] == pytest.approx([mean] * shared)
        assert hard[one.id][shared:] == soft[one.id][shared:]
    assert all(hard[one.id] == soft[one.id] for one in restarted)


async def test_a_stop_among_the_first_tokens_waits_for_the_fork(world: MakeWorld) -> None:
    """The whole action is looked at; its call goes out only behind the fork."""
    double = Forking()
    here = await world(tools=double, run=RUN, task={"branching": {**BRANCHING, "tokens": 200}})
    counting(here)
    ((first, *others),) = await rolled_out(here)
    assert [observations(one) for one in (first, *others)] == [["5", "6", "7"]] * 4
    assert len(double.forks) == 1
    assert [t.sequences[0].parent for t in others].count(first.sequences[0].id) == 1
    assert len(double.ran) == 4 * 3 - 2  # two calls are in what both share


async def test_the_budget_is_the_groups_and_the_beam_the_turns(world: MakeWorld) -> None:
    double = Forking()
    table = {**BRANCHING, "beam": 4}
    here = await world(tools=double, run={**RUN, "group_size": 3}, task={"branching": table})
    counting(here)
    ((first, *others),) = await rolled_out(here)
    assert len(double.forks) == 2  # three were wanted, two places were left
    assert [one.sequences[0].parent for one in others] == [first.sequences[0].id] * 2


@pytest.mark.parametrize("places", [1, 2, 5])
async def test_places_are_few_and_nobody_waits_for_ever(world: MakeWorld, places: int) -> None:
    """With one place nobody can branch; members that wait for a branch have a place each."""
    here = await world(
        tools=Forking(), run={**RUN, "groups_per_step": 3}, task={"branching": BRANCHING}
    )
    counting(here)
    groups = await rolled_out(here, f"engine.max_concurrent={places}", groups=3)
    assert [len(members) for members in groups] == [4, 4, 4]
    branches = [one for members in groups for one in members if one.sequences[0].parent]
    assert bool(branches) is (places > 1)


async def test_a_stream_that_breaks_shows_in_no_entropy(world: MakeWorld) -> None:
    turn_2_is_looked_at = 4  # each turn is two requests: its first tokens, and the rest
    here = await world(
        tools=Forking(),
        run={**RUN, "group_size": 2},
        task={"branching": BRANCHING},
        sampler={"stream_interval": 1},
        faults=Faults(breaks={turn_2_is_looked_at: Break(chunks=1)}),
    )
    counting(here)
    ((first, branch),) = await rolled_out(here)
    most = 3 * math.log(4) / math.log(here.codec.vocab_size)
    assert notes(first)[2].data["entropy"] == pytest.approx(most, abs=1e-6)
    assert branch.sequences[0].parent == first.sequences[0].id


async def test_a_branch_outlives_the_attempt_that_it_parted_from(world: MakeWorld) -> None:
    """The parent's session is lost behind the fork: another attempt makes its trajectory anew. The
    branch is what it was, and shares nothing with that."""

    class Losing(Forking):
        def _count(self, request: pb.CallToolRequest) -> pb.CallResult:
            parted = bool(self.forks) and request.session_id == self.forks[0].session_id
            if parted:
                raise session_lost()
            return super()._count(request)

    here = await world(
        tools=Losing(),
        run={**RUN, "group_size": 2},
        task={"branching": BRANCHING},
        engine={"history": "all"},
    )
    here.rewards("return float(trajectory.index)")
    counting(here)
    ((first, branch),) = await rolled_out(here)
    assert (first.attempt, branch.attempt) == (1, 0)
    assert observations(first) == observations(branch) == ["5", "6", "7"]
    assert branch.sequences[0].parent == f"{first.id}/b1r0a0.0" != first.sequences[0].id
    rewards = Rewards("./my_reward.py:score", here.folder, per_group=False, seconds=20)
    done = await replay(here.folder / "run", {"": rewards}, here.folder)
    assert (done.trajectories, done.differences) == (2, [])
    group = Group(id=first.group_id, trajectories=(first, branch))
    hard = credited([group], Advantage(std="none"), Credit(branches="hard"))
    assert hard == credited([group], Advantage(std="none"))


@pytest.mark.parametrize("tools", ["cannot", "refuses", "is full", "breaks"])
async def test_a_tool_that_cannot_fork_ends_in_a_sentence(world: MakeWorld, tools: str) -> None:
    """Nothing is lost: the group has its size, from the prompt, and says why."""

    def fail() -> None:
        if tools == "breaks":
            raise broken()
        if tools == "is full":
            reason = reasons.ERROR_REASON_TOO_MANY_SESSIONS
            raise ServiceError(reason, "no room", retry_after=30.0)
        raise ServiceError(reasons.ERROR_REASON_NOT_SERVED, "it computes something else")

    double = Forking(fail, can=tools != "cannot")
    here = await world(tools=double, run=RUN, task={"branching": BRANCHING})
    counting(here)
    with capture_logs() as lines:
        (members,) = await rolled_out(here)
    assert len(members) == 4
    assert all(one.sequences[0].parent is None for one in members)
    assert all(observations(one) == ["5", "6", "7"] for one in members)
    told = [line["event"] for line in lines]
    if tools == "cannot":
        (note,) = [note for one in members for note in notes(one, "branching_denied")]
        assert note.data["tools"] == ["python"]
        assert "branching_denied" in told
        assert not any(one.body.get("top_logprobs_num") for one in here.sampler.requests)
    else:
        (note,) = notes(members[0], "branch_refused")
        assert "cannot be forked" in note.data["error"] or tools == "breaks"
        assert "branch_refused" in told
    assert not double.live


async def test_a_later_life_goes_on_with_branches(world: MakeWorld) -> None:
    """The engine is stopped while both halves are on their way; the next life folds a branch's log
    behind its parent's, finds the forked session, and samples nothing again."""
    double = Forking()
    here = await world(
        tools=double,
        run={**RUN, "group_size": 2},
        task={"branching": {**BRANCHING, "tokens": 3}},
        timing=Timing(tokens_per_second=60.0),
    )
    counting(here)
    async with here.engine("engine.drain_s=0") as run:
        await until(lambda: len(double.live) == 2, "the fork")
        # The service has forked before the engine knows it; the next request comes after both.
        asked = len(here.sampler.requests)
        await until(lambda: len(here.sampler.requests) > asked, "the branch")
        run.engine.stop()
    ((first, branch),) = await rolled_out(here)
    assert branch.sequences[0].parent == first.sequences[0].id
    assert observations(branch) == observations(first) == ["5", "6", "7"]
    assert (len(double.forks), len(double.opened)) == (1, 1)
    assert len(double.ran) == 2 * 3 - 2
