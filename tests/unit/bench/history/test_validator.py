"""Every invariant is broken by small changes of one valid history, and is named for each."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from bench.history.events import (
    Acknowledged,
    Admitted,
    AnyEvent,
    Dispatched,
    Effect,
    Evaluated,
    Fate,
    FaultsOver,
    Finished,
    History,
    LifeBegan,
    LifeEnded,
    Loaded,
    Member,
    Offered,
    Planned,
    Position,
    Published,
    Publishing,
    Restored,
    Sampled,
    SessionClosed,
    SessionOpened,
    Trained,
)
from bench.history.findings import HistoryError
from bench.history.invariants import INVARIANTS
from bench.history.validator import unjudged, validate, violations
from tests.support.histories import A0, A1, A2, B2, valid_history
from tests.support.histories import replaced as changed
from toolwright.types import WeightVersion, ids

pytestmark = pytest.mark.quick

Kind = TypeVar("Kind")
Change = Callable[[History], History]

G1 = "g0000001-0/b0r0a0"
GIVEN_UP = "g0000001-1/b0r0a0"
G4 = "g0000004-0/b1r0a0"
UNKNOWN = WeightVersion(lineage="z", step=1)


def places(history: History, kind: type[Kind], **fields: object) -> list[int]:
    """Indexes of the events of a kind with these fields."""
    return [
        index
        for index, event in enumerate(history)
        if isinstance(event, kind)
        and all(getattr(event, name) == value for name, value in fields.items())
    ]


def edit(kind: type[Any], number: int = 0, *, where: dict[str, Any] | None = None, **new: Any):
    """Other values for fields of one event; a function gets the old value."""

    def apply(history: History) -> History:
        index = places(history, kind, **(where or {}))[number]
        values = {
            name: value(getattr(history[index], name)) if callable(value) else value
            for name, value in new.items()
        }
        return [*history[:index], changed(history[index], **values), *history[index + 1 :]]

    return apply


def delete(kind: type[Any], number: int = 0, **where: Any) -> Change:
    def apply(history: History) -> History:
        index = places(history, kind, **where)[number]
        return [*history[:index], *history[index + 1 :]]

    return apply


def insert(
    after: tuple[type[Any], int, dict[str, Any]], *events: AnyEvent, before: bool = False
) -> Change:
    """Events after the one of a kind with a number and fields, or before it."""

    def apply(history: History) -> History:
        kind, number, where = after
        index = places(history, kind, **where)[number] + (not before)
        return timed([*history[:index], *events, *history[index:]])

    return apply


def again(kind: type[Any], number: int, after: tuple[type[Any], int], **new: Any) -> Change:
    """A copy of an event after another one."""

    def apply(history: History) -> History:
        copy = changed(history[places(history, kind)[number]], **new)
        return insert((after[0], after[1], {}), copy)(history)

    return apply


def move(kind: type[Any], number: int, after: int) -> Change:
    """An event to after another one of its kind."""

    def apply(history: History) -> History:
        found = places(history, kind)
        moved, to = found[number], found[after]
        rest = [*history[:moved], *history[moved + 1 : to + 1], history[moved]]
        return timed([*rest, *history[to + 1 :]])

    return apply


def both(*changes: Change) -> Change:
    def apply(history: History) -> History:
        for change in changes:
            history = change(history)
        return history

    return apply


def timed(history: History) -> History:
    """No event before its predecessor."""
    found: History = []
    now = 0.0
    for event in history:
        now = max(now, event.at)
        found.append(changed(event, at=now))
    return found


def member(number: int, **new: Any) -> Callable[[tuple[Member, ...]], tuple[Member, ...]]:
    """Another value for fields of one member; a function gets the old value."""

    def apply(members: tuple[Member, ...]) -> tuple[Member, ...]:
        found = list(members)
        old = found[number]
        values = {k: v(getattr(old, k)) if callable(v) else v for k, v in new.items()}
        found[number] = changed(old, **values)
        return tuple(found)

    return apply


def segment(number: int, **new: Any) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    def apply(segments: tuple[Any, ...]) -> tuple[Any, ...]:
        found = list(segments)
        found[number] = changed(found[number], **new)
        return tuple(found)

    return apply


def other_last_id(segments: tuple[Any, ...]) -> tuple[Any, ...]:
    return segment(-1, token_ids=ids([*segments[-1].token_ids[:-1], 99_999]))(segments)


def renamed(name: str) -> Callable[[tuple[Member, ...]], tuple[Member, ...]]:
    return lambda found: tuple(
        changed(one, trajectory=f"{name}-{index}") for index, one in enumerate(found)
    )


def request(history: History, attempt: str, *more: int, number: int = -1) -> Sampled:
    """One more request of an attempt: an earlier one's prompt and more ids."""
    earlier = history[places(history, Sampled, attempt=attempt)[number]]
    assert isinstance(earlier, Sampled)
    return changed(earlier, prompt=ids([*earlier.prompt, *more]), token_ids=ids())


def ask_more(attempt: str, *more: int, number: int = -1) -> Change:
    return lambda history: insert(
        (Sampled, -1, {"attempt": attempt}), request(history, attempt, *more, number=number)
    )(history)


def swapped_answers(history: History) -> History:
    one, other = places(history, Effect, call_id=f"{G1}/0/0") + places(
        history, Effect, call_id=f"{G1}/0/1"
    )
    first, second = history[one], history[other]
    assert isinstance(first, Effect)
    assert isinstance(second, Effect)
    found = list(history)
    found[one] = changed(first, answer=second.answer)
    found[other] = changed(second, answer=first.answer)
    return found


def without_calls_of_publish(history: History) -> History:
    return [event for event in history if not isinstance(event, Publishing)]


def late_request(version: WeightVersion, after: WeightVersion) -> Change:
    def apply(history: History) -> History:
        at = history[places(history, Published, version=after)[0]].at
        asked = Sampled(
            at=at + 0.004, attempt="g0000009-0/b1r0a0", server="s0", prompt=ids([1]),
            token_ids=ids(), version=version, began=at + 0.002,
        )  # fmt: skip
        return insert((Published, 0, {"version": after}), asked)(history)

    return apply


def session(attempt: str, life: int) -> str:
    return f"owner/{attempt}@b{life}"


def effect(attempt: str, life: int, call: str) -> Effect:
    return Effect(at=0, session=session(attempt, life), call_id=f"{attempt}/{call}", action="x")


def dispatched(attempt: str, life: int) -> Dispatched:
    return Dispatched(at=0, life=life, attempt=attempt, call_id=f"{attempt}/5/0")


CALL_4 = {"call_id": f"{G4}/0/0"}
MUTILATIONS: dict[str, list[Change]] = {
    "one_number_a_group": [
        edit(Offered, 6, sequence=8),
        edit(Offered, 6, group="g0000008", members=renamed("g0000008")),
    ],
    "numbers_grow": [move(Offered, 4, 6), move(Offered, 3, 4)],
    "same_bytes_again": [edit(Offered, 6, hash="other"), edit(Offered, 6, bytes_hash="other")],
    "stored_bytes_never_change": [
        edit(Offered, 2, stored_hash="other"),
        edit(Offered, 6, stored_hash="other"),
    ],
    "only_loss_changes": [
        edit(Offered, 6, members=member(1, segments=other_last_id)),
        edit(Offered, 2, members=member(0, segments=segment(1, version=A1))),
        edit(Offered, 6, members=lambda found: found[::-1]),
        edit(Offered, 2, members=member(0, masked=True)),
    ],
    "groups_are_whole": [
        edit(Offered, 4, members=lambda found: found[:1]),
        edit(Offered, 0, members=lambda found: (found[0], found[0])),
        edit(Offered, 4, members=member(1, trajectory="g0000003-1")),
        edit(Offered, 4, members=member(1, trajectory="g0000004-x")),
    ],
    "marks_are_monotone": [
        insert((Acknowledged, 0, {}), Acknowledged(at=0, mark=1)),
        edit(Acknowledged, -1, mark=7),
    ],
    "acknowledged_is_gone": [
        again(Offered, 2, (Acknowledged, 0)),
        again(Offered, 4, (Acknowledged, -1)),
    ],
    "trained_once": [
        edit(Trained, -1, sequences=(5, 3)),
        edit(Trained, 2, sequences=(2, 1)),
        edit(Trained, 3, sequences=(3, 3)),
        again(Trained, 3, (Trained, 3)),
    ],
    "one_fate_a_position": [
        again(Position, 0, (Position, 0)),
        edit(Position, 8, group="g0000005"),
        edit(Position, 5, sequence=4),
    ],
    "fates_hold": [
        edit(Position, 2, fate=Fate.PENDING),
        edit(Position, 3, reason=""),
        edit(Position, 3, fate=Fate.TRAINED),
        edit(Position, 4, fate=Fate.DROPPED, reason="stale"),
        edit(Position, 4, fate=Fate.TURNED_AWAY),
        edit(Position, 6, reason=""),
        edit(Position, 6, sequence=9),
        edit(Position, 7, fate=Fate.TRAINED),
        edit(Position, 0, sequence=9),
    ],
    "nothing_lost": [delete(Position, 2), delete(Position, 5)],
    "last_attempt_counts": [
        edit(Position, 1, attempts=lambda found: (found[0], found[1][::-1])),
        edit(Position, 1, attempts=lambda found: ((*found[0], "g0000001-0/b1r0a1"), found[1])),
    ],
    "effect_once": [
        again(Effect, 0, (Effect, 0)),
        again(Effect, -1, (Effect, -1), answer=ids([1, 2])),
    ],
    "one_session_an_attempt": [
        both(
            insert(
                (Effect, 0, {"call_id": f"{G1}/0/0"}),
                SessionOpened(at=0, session=session(G1, 1)),
            ),
            edit(Effect, where={"call_id": f"{G1}/0/1"}, session=session(G1, 1)),
        ),
        insert(
            (Effect, 0, {"call_id": f"{G1}/0/0"}),
            SessionClosed(at=0, session=session(G1, 0)),
            SessionOpened(at=0, session=session(G1, 0)),
        ),
    ],
    "effects_in_turn_order": [
        insert((Effect, 0, CALL_4), effect(G4, 1, "1/0"), before=True),
        insert((Effect, 0, CALL_4), effect(G4, 1, "2/0"), effect(G4, 1, "1/0")),
    ],
    "effects_in_open_sessions": [
        delete(SessionOpened, session=session(G4, 1)),
        insert((Effect, 0, CALL_4), SessionClosed(at=0, session=session(G4, 1)), before=True),
    ],
    "calls_in_order": [
        edit(Offered, 0, members=member(0, calls=("g0000000-0/b0r0a0/0/1",))),
        edit(Offered, 4, members=member(0, calls=lambda c: c * 2, actions=lambda a: a * 2)),
        edit(Offered, 4, members=member(0, calls=("g0000004-0/b9r0a0/0/0",))),
        edit(
            Offered,
            4,
            members=member(0, calls=(f"{G4}/1/0", f"{G4}/0/0"), actions=lambda a: a * 2),
        ),
    ],
    "no_dispatch_after_a_life": [
        edit(Dispatched, 0, life=7),
        insert((LifeEnded, 0, {}), dispatched(GIVEN_UP, 0)),
        insert((LifeBegan, 1, {}), dispatched(GIVEN_UP, 0)),
    ],
    "one_life_an_attempt": [
        insert((Dispatched, 0, CALL_4), LifeBegan(at=0, life=5), dispatched(G4, 5)),
        insert((Dispatched, -1, {}), LifeBegan(at=0, life=5), dispatched("g0000004-1/b1r0a0", 5)),
    ],
    "no_dispatch_after_close": [
        insert((SessionClosed, 0, {"session": session(G4, 1)}), dispatched(G4, 1)),
        insert((SessionClosed, 0, {"session": session(G1, 0)}), dispatched(G1, 1)),
    ],
    "model_ids_were_sent": [
        edit(Sampled, where={"attempt": "g0000000-0/b0r0a0"}, token_ids=ids([7, 8])),
        delete(Sampled, -1, attempt=G4),
        edit(Offered, 4, members=member(0, segments=other_last_id)),
        edit(Sampled, where={"attempt": G1}, token_ids=lambda sent: sent[:2]),
    ],
    "versions_are_honest": [
        edit(Offered, 4, members=member(0, segments=segment(1, version=B2))),
        edit(Offered, 0, members=member(1, segments=segment(3, version=A1))),
    ],
    "prompts_are_prefixes": [
        ask_more(G4, 99_999),
        ask_more("g0000000-1/b0r0a0", 99_999, 99_998),
    ],
    "prompts_grow": [
        lambda history: insert(
            (Sampled, -1, {"attempt": GIVEN_UP}),
            changed(request(history, GIVEN_UP), prompt=ids(range(50_000, 50_009))),
        )(history),
        edit(Sampled, 3, where={"attempt": G1}, prompt=lambda p: ids([99_999, *p[1:]])),
    ],
    "tool_ids_are_answers": [
        edit(Effect, where=CALL_4, answer=ids([1, 2, 3, 4])),
        edit(Effect, where=CALL_4, answer=lambda answer: answer[:2]),
        swapped_answers,
    ],
    "answers_fit_actions": [
        edit(Effect, where=CALL_4, action="an abandoned action"),
        edit(Offered, 4, members=member(1, actions=("an action sampled anew",))),
    ],
    "served_versions_are_published": [
        edit(Sampled, where={"attempt": GIVEN_UP}, version=UNKNOWN),
        both(
            without_calls_of_publish,
            edit(Sampled, where={"attempt": GIVEN_UP}, version=UNKNOWN),
        ),
    ],
    "requests_get_the_newest": [late_request(A0, A2), late_request(A1, B2)],
    "admission_keeps_the_bound": [
        edit(Admitted, 1, running=5),
        edit(Admitted, -1, accepted=8),
        insert(
            (Admitted, -1, {}),
            Admitted(at=0, step=3, accepted=8, running=0),
            Admitted(at=0, step=3, accepted=8, running=2),
        ),
    ],
    "no_old_token_carries_loss": [
        edit(Offered, 3, members=member(0, segments=segment(1, trainable=True))),
        edit(Offered, 0, version=A2),
    ],
    "fresh_tokens_keep_loss": [
        edit(Offered, 4, members=member(0, segments=segment(1, trainable=False))),
        edit(Offered, 1, members=member(1, segments=segment(-1, trainable=False))),
    ],
    "only_the_policy_carries_loss": [
        edit(Offered, 4, members=member(0, segments=segment(2, trainable=True))),
        edit(Offered, 4, members=member(1, segments=segment(0, trainable=True))),
    ],
    "evaluations_are_whole": [edit(Evaluated, rows=2), edit(Evaluated, expected_rows=4)],
    "evaluations_have_one_version": [
        edit(Evaluated, wrote=(A0, A1)),
        edit(Evaluated, wrote=(UNKNOWN,)),
    ],
    "nothing_is_left": [
        edit(Finished, sessions=1),
        edit(Finished, requests=1),
        edit(Finished, places=1),
        edit(Finished, tasks=2),
    ],
    "finishes_after_faults": [
        edit(Finished, complete=False),
        edit(FaultsOver, bound=0.01),
        delete(Finished),
    ],
}


def test_a_valid_history_with_kills_cuts_and_a_rewind_passes() -> None:
    history = valid_history()
    assert violations(history) == ()
    assert validate(history) is None
    assert unjudged(history) == ()


def test_every_invariant_has_two_mutilations() -> None:
    assert set(MUTILATIONS) == {one.name for one in INVARIANTS}
    assert all(len(changes) > 1 for changes in MUTILATIONS.values())


@pytest.mark.parametrize(
    ("name", "number"),
    [(name, number) for name, changes in MUTILATIONS.items() for number in range(len(changes))],
)
def test_a_mutilation_breaks_its_invariant_and_no_other(name: str, number: int) -> None:
    history = MUTILATIONS[name][number](valid_history())
    assert [one.invariant.name for one in violations(history)] == [name]
    found = validate(history)
    assert found is not None
    assert found.at == history[found.index].at
    assert sum(line.startswith(">") for line in found.around) == 1
    assert name in str(found)


def test_the_earliest_violation_is_named_first() -> None:
    late, early = MUTILATIONS["nothing_is_left"][0], MUTILATIONS["effect_once"][0]
    found = [one.invariant.name for one in violations(both(late, early)(valid_history()))]
    assert found == ["effect_once", "nothing_is_left"]


def test_a_violation_shows_the_events_of_the_same_attempt() -> None:
    found = validate(MUTILATIONS["answers_fit_actions"][0](valid_history()))
    assert found is not None
    assert "an abandoned action" in found.message
    text = "\n".join(found.around)
    assert f"Effect session={session(G4, 1)}" in text
    assert "> " in text
    assert "g0000000-0" not in text


ABSENT: list[tuple[type[Any], set[str]]] = [
    (Evaluated, {"evaluations_are_whole", "evaluations_have_one_version"}),
    (Admitted, {"admission_keeps_the_bound"}),
    (FaultsOver, {"finishes_after_faults"}),
    (
        Position,
        {"one_fate_a_position", "fates_hold", "nothing_lost", "last_attempt_counts"},
    ),
    (Dispatched, {"no_dispatch_after_a_life", "one_life_an_attempt", "no_dispatch_after_close"}),
    (Acknowledged, {"marks_are_monotone"}),
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


def test_a_kill_excuses_prompts_that_the_record_lacks() -> None:
    history = edit(LifeEnded, killed=False)(valid_history())
    assert [one.invariant.name for one in violations(history)] == ["prompts_are_prefixes"]


def test_an_action_that_never_ended_may_be_asked_for_again() -> None:
    """The trajectory's time ends while a broken stream is continued: the record lacks its ids."""
    history = valid_history()
    last = history[places(history, Sampled, attempt=G4)[-1]]
    assert isinstance(last, Sampled)
    record = ids([*last.prompt, *last.token_ids])
    more = [
        changed(last, prompt=record, token_ids=ids([7, 8, 9])),
        changed(last, prompt=ids([*record, 7, 8]), token_ids=ids()),
    ]
    where = (Sampled, -1, {"attempt": G4})
    assert violations(insert(where, *more)(history)) == ()
    wrong = changed(last, prompt=ids([*record, 8]), token_ids=ids())
    found = violations(insert(where, more[0], wrong)(history))
    assert [one.invariant.name for one in found] == ["prompts_are_prefixes"]


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
