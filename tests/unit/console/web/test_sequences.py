"""The tree of a trajectory's sequences: each token once, each sequence with its reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from console.web.telling.sequences import WHY, branches
from console.web.telling.telling import of_record
from console.web.telling.tokens import Spellings
from engine.core.trajectory.events import Ended
from engine.core.trajectory.record import record
from tests.support import records
from tests.support.forked import forked
from tests.support.journaled import identity_of
from tests.support.outside import OutsideAgent
from tests.support.recorded_runs import Recorded
from toolwright import types as t


def test_a_sequence_says_why_it_began_and_whether_it_trains(tmp_path: Path) -> None:
    trajectory = forked(Recorded(tmp_path))
    first, sample, helper, edited, compacted = branches(trajectory)
    assert [one.why for one in (first, sample, edited, compacted)] == [
        "", WHY["sample"], WHY["branch"], WHY["root"],
    ]  # fmt: skip
    assert helper.why == "the first call of another agent"
    assert [one.turn for one in branches(trajectory)] == [0, 2, 3, 5, 6]
    assert (sample.trained, edited.trained) == (0, edited.written)
    assert [one.row for one in branches(trajectory)] == [0, 1, 3, 2, 4], "a parent over its forks"
    assert (sample.untrained, edited.untrained) == ("superseded", "")
    masked = branches(replace(trajectory, masked=True))
    assert {(one.trained, one.untrained) for one in masked} == {(0, "masked")}


def test_forks_of_the_engine_have_reasons() -> None:
    """As its log makes them, not as this test believes they are."""
    agent = OutsideAgent()
    talk = agent.talk(["q"])
    agent.talk([*talk, "u"])
    agent.talk([*talk, "other"])
    agent.talk([*talk, "u"])
    agent.talk(["summary"], agent="helper")
    agent.add(Ended(reason=t.StopReason.ANSWERED))
    trajectory = record(agent.state, identity_of("g1-0"))
    assert [one.why for one in branches(trajectory)] == [
        "", WHY["branch"], WHY["sample"], "the first call of another agent",
    ]  # fmt: skip
    assert sum(one.written for one in branches(trajectory)) == trajectory.response_tokens


def test_the_first_of_two_samples_is_superseded_if_the_agent_goes_on_from_the_second(
    tmp_path: Path,
) -> None:
    run = Recorded(tmp_path)
    prompts = ("the same", "the same", "an aside")
    trajectory = run.trajectory(
        sequences=tuple(
            t.Sequence(
                id=str(number),
                segments=(
                    run.segment(t.Author.PROMPT, prompt),
                    run.segment(t.Author.MODEL, "so", turn=number, trainable=number == 1),
                ),
            )
            for number, prompt in enumerate(prompts)
        ),
        events=tuple(
            t.Event(kind="sequence_forked", turn=turn, data={"cause": "root"}) for turn in (1, 2)
        ),
    )
    assert [one.why for one in branches(trajectory)] == ["", WHY["sample"], WHY["root"]]
    assert [one.untrained for one in branches(trajectory)] == ["superseded", "", "not trained"]


def test_a_rewrite_and_a_branch_of_another_trajectory_have_reasons(tmp_path: Path) -> None:
    run = Recorded(tmp_path)
    trajectory = run.trajectory()
    (sequence,) = trajectory.sequences
    parented = replace(sequence, parent="g0-7.0", fork_offset=3)
    (branch,) = branches(replace(trajectory, sequences=(parented,)))
    assert (branch.why, branch.shared) == ("a branch of g0-7.0", 0)
    again = replace(sequence, id="g0-0.1", parent=sequence.id, fork_offset=0)
    note = t.Event(kind="sequence_forked", turn=0, data={"cause": "full"})
    rewritten = replace(trajectory, sequences=(sequence, again), events=(note,))
    assert branches(rewritten)[1].why == "the context was rewritten: full"


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), min_size=1, max_size=10))
def test_every_sequence_has_a_row_below_its_parent(drawn: list[tuple[int, int]]) -> None:
    """Also where a record names itself, a later one, or more tokens than there are."""
    segment = t.Segment(author=t.Author.MODEL, token_ids=t.ids(range(5)))
    sequences = tuple(
        t.Sequence(id=str(n), segments=(segment,), parent=str(parent), fork_offset=shared)
        for n, (parent, shared) in enumerate(drawn)
    )
    found = branches(replace(EMPTY, sequences=sequences))
    assert sorted(one.row for one in found) == list(range(len(drawn)))
    for one in found:
        assert one.parent is None or found[one.parent].row < one.row


@settings(max_examples=25)
@given(records.trajectories)
def test_what_is_drawn_is_what_is_shown(trajectory: t.Trajectory) -> None:
    shown = of_record(trajectory, Spellings(Path("/nowhere")))["sequences"]
    for one in shown:
        drawn = sum(end - start for _, _, start, end, _ in one["branch"]["spans"])
        assert drawn == sum(segment["tokens"] for segment in one["segments"])


EMPTY = t.Trajectory(
    id="g0-0",
    group_id="g0",
    task=t.Task(id="t"),
    sequences=(),
    status=t.Status.COMPLETED,
    stop_reason=t.StopReason.ANSWERED,
)
