"""What the validator says of a history, and how long it takes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from bench.history.events import (
    Abandoned,
    Acknowledged,
    Admitted,
    Dispatched,
    Effect,
    Evaluated,
    FaultsOver,
    Finished,
    History,
    LifeBegan,
    Loaded,
    Planned,
    Position,
    Restored,
    SupersededRequest,
    Taken,
    Trained,
)
from bench.history.findings import HistoryError
from bench.history.invariants import INVARIANTS
from bench.history.validator import unjudged, validate, violations
from tests.support.histories import A0, valid_history
from tests.support.history_changes import (
    CALL_4,
    G4,
    again,
    both,
    edit,
    places,
    session,
)

pytestmark = pytest.mark.quick


def test_a_valid_history_with_kills_cuts_and_a_rewind_passes() -> None:
    history = valid_history()
    assert violations(history) == ()
    assert validate(history) is None
    assert unjudged(history) == ()


def test_the_earliest_violation_is_named_first() -> None:
    late, early = edit(Finished, sessions=1), again(Effect, 0, (Effect, 0))
    found = [one.invariant.name for one in violations(both(late, early)(valid_history()))]
    assert found == ["effect_once", "nothing_is_left"]


def test_a_violation_shows_the_events_of_the_same_attempt() -> None:
    found = validate(edit(Effect, where=CALL_4, action="an abandoned action")(valid_history()))
    assert found is not None
    assert "an abandoned action" in found.message
    text = "\n".join(found.around)
    assert f"Effect session={session(G4, 1)}" in text
    assert "> " in text
    assert "g0000000-0" not in text


ABSENT: list[tuple[type[Any], set[str]]] = [
    (Evaluated, {"evaluations_are_whole", "evaluations_have_one_version"}),
    (Admitted, {"admission_keeps_the_bound"}),
    (FaultsOver, {"finishes_after_faults", "delivered_groups_leave_no_session"}),
    (
        Position,
        {"one_fate_a_position", "fates_hold", "nothing_lost", "last_attempt_counts"},
    ),
    (Dispatched, {"no_dispatch_after_a_life", "one_life_an_attempt", "no_dispatch_after_close"}),
    (Acknowledged, {"marks_are_monotone", "a_full_disk_takes_acknowledgements"}),
    (SupersededRequest, {"superseded_learners_are_refused"}),
    (Abandoned, {"left_requests_are_aborted"}),
    (Taken, {"no_call_below_a_fence"}),
]


@pytest.mark.parametrize(("kind", "names"), ABSENT)
def test_what_no_event_shows_is_listed(kind: type[Any], names: set[str]) -> None:
    history = [event for event in valid_history() if not isinstance(event, kind)]
    assert set(unjudged(history)) == names
    assert validate(history) is None


def test_a_plan_alone_judges_nothing() -> None:
    history: History = [Planned(at=0.0, eta=0, batch=1, group_size=1, steps=1)]
    assert validate(history) is None
    assert set(unjudged(history)) == {one.name for one in INVARIANTS}


@pytest.mark.parametrize(
    ("history", "words"),
    [
        ([], "begins with Planned"),
        ([Loaded(at=0.0, server="s", version=A0)], "begins with Planned"),
        (
            [
                Planned(at=1.0, eta=0, batch=1, group_size=1, steps=1),
                LifeBegan(at=0.5, life=0),
            ],
            "sort the events",
        ),
        (
            [
                Planned(at=0.0, eta=0, batch=1, group_size=1, steps=1),
                Effect(at=0.0, session="s", call_id="x/y", action=""),
            ],
            "ATTEMPT/TURN/INDEX",
        ),
    ],
)
def test_what_is_no_history_is_refused(history: History, words: str) -> None:
    with pytest.raises(HistoryError, match=words):
        validate(history)


def test_a_rewind_frees_what_the_abandoned_steps_trained_on() -> None:
    history = valid_history()
    index = places(history, Restored)[0]
    found = violations([*history[:index], *history[index + 1 :]])
    assert "trained_once" in [one.invariant.name for one in found]


def test_time_is_linear_in_the_events(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints seconds of CPU; only the verdict is asserted."""
    history = long_history(100_000)
    began = time.process_time()
    assert validate(history) is None
    seconds = time.process_time() - began
    with capsys.disabled():
        print(f"\n{len(history)} events judged in {seconds:.2f} CPU-seconds")


def long_history(events: int) -> History:
    """The valid history's groups, as often as it takes, with names and numbers of their own."""
    from tests.support.histories import Story

    story = Story()
    story.add(
        Planned(at=0, eta=events, batch=2, group_size=2, steps=events),
        LifeBegan(at=0, life=0),
        Loaded(at=0, server="s0", version=A0),
    )
    group = 0
    while len(story.events) < events:
        story.offer(group + 1, group, A0, story.plain(group, life=0, version=A0))
        story.add(Trained(at=0, lineage="a", step=group + 1, sequences=(group + 1,)))
        group += 1
    return story.events
