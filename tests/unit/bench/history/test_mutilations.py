"""Small changes of one valid history break each invariant, and it alone."""

from __future__ import annotations

import pytest

from bench.history.events import (
    Abandoned,
    Acknowledged,
    Admitted,
    Dispatched,
    Effect,
    Evaluated,
    Fate,
    FaultsOver,
    Finished,
    GivenUp,
    Journaled,
    LifeBegan,
    LifeEnded,
    Offered,
    Position,
    Published,
    Publishing,
    RewardCalled,
    RoomAgain,
    Sampled,
    SessionClosed,
    SessionOpened,
    SupersededRequest,
    Taken,
    Trained,
)
from bench.history.invariants import INVARIANTS
from bench.history.validator import validate, violations
from tests.support.histories import A0, A1, A2, B1, B2, B3, EVALUATED, journaled, valid_history
from tests.support.histories import replaced as changed
from tests.support.history_changes import (
    CALL_4,
    G1,
    G4,
    GIVEN_UP,
    UNKNOWN,
    Change,
    again,
    ask_more,
    both,
    closed,
    delete,
    dispatched,
    edit,
    effect,
    insert,
    later,
    member,
    move,
    other_last_id,
    refused,
    renamed,
    request,
    segment,
    session,
    swapped_answers,
    under,
    without_calls_of_publish,
)
from toolwright.types import ids

pytestmark = pytest.mark.quick

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
    "nothing_lost": [
        delete(Position, 2),
        delete(Position, 5),
        both(delete(Position, 8), delete(Position, 7)),
    ],
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
    "effects_are_recorded": [
        edit(Offered, 3, members=member(0, turns=("another action",))),
        edit(Offered, 3, members=member(0, turns=("", "action g0000002-0/b1r0a0/0/0"))),
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
    "no_call_below_a_fence": [
        again(Taken, 0, (Taken, 0), fence=0),
        insert((Taken, -1, {}), *(Taken(at=0, session="s", fence=fence) for fence in (3, 2))),
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
    "requests_get_the_newest": [
        under(G4, B2, 4),
        under("g0000004-1/b1r0a0", B2, 4, who=1),
    ],
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
    "turns_are_bounded": [
        lambda _history: valid_history(turns=3),
        lambda _history: valid_history(turns=4),
    ],
    "logs_are_prefixes": [edit(Journaled, agreeing=2), edit(Journaled, -1, agreeing=0)],
    "events_become_durable": [
        edit(Journaled, due=5),
        edit(Journaled, -1, kept=5, agreeing=5),
    ],
    "a_full_disk_ends_by_itself": [
        edit(RoomAgain, full=True),
        again(RoomAgain, 0, (Trained, -1), full=True),
    ],
    "evaluations_keep_their_weights": [
        edit(Sampled, where={"attempt": EVALUATED}, attempt=EVALUATED.replace("b.1", "a.1")),
        edit(Sampled, where={"attempt": EVALUATED}, attempt=EVALUATED.replace("b.1", "a.0")),
    ],
    "one_open_log": [
        edit(Journaled, -1, complete=True),
        insert((Journaled, 0, {}), journaled("g0000001-0/b0r0a1")),
    ],
    "sessions_in_flight_stay_open": [
        insert((Journaled, -1, {}), closed("g0000008-1/b1r0a0"), before=True),
        insert((LifeEnded, -1, {}), closed("g0000008-1/b1r0a0")),
    ],
    "attempts_end_for_a_reason": [
        delete(SessionClosed, session=session("g0000008-0/b1r0a0", 1)),
        insert(
            (Sampled, -1, {"attempt": "g0000008-1/b1r0a0"}),
            GivenUp(at=0, attempt="g0000008-1/b1r0a0"),
        ),
    ],
    "attempts_are_given_up_once": [
        again(GivenUp, 0, (GivenUp, 0)),
        again(GivenUp, 0, (Trained, -1)),
    ],
    "masks_stay": [
        both(
            edit(Offered, 5, members=member(0, masked=False)),
            edit(Offered, 6, members=member(0, masked=False)),
        ),
        edit(Offered, 4, members=member(1, errored=True)),
    ],
    "scored_once": [
        again(RewardCalled, 0, (LifeBegan, 1)),
        again(RewardCalled, 0, (LifeEnded, 1), masks=True),
    ],
    "a_repeated_publish_is_accepted": [
        insert((Published, 2, {}), refused("PublishWeights", "WRONG_VERSION", B1)),
        insert((Published, -1, {}), refused("PublishWeights", "WRONG_VERSION", B3)),
    ],
    "a_full_disk_takes_acknowledgements": [
        insert((Acknowledged, 0, {}), refused("AckGroups", "DISK_FULL")),
        insert((Trained, 0, {}), refused("AckGroups", "DISK_FULL")),
    ],
    "superseded_learners_are_refused": [
        edit(SupersededRequest, accepted=True),
        again(SupersededRequest, 0, (Trained, -1), accepted=True),
    ],
    "superseded_learners_move_no_sampler": [
        edit(Publishing, 2, learner="l1"),
        edit(Publishing, -1, learner="l1"),
    ],
    "delivered_groups_leave_no_session": [
        both(delete(SessionClosed, session=session(G4, 1)), later(LifeEnded, -1, 20.0)),
        both(delete(SessionClosed, session=session(G1, 0)), later(LifeEnded, -1, 11.0)),
    ],
    "left_requests_are_aborted": [
        edit(Abandoned, aborted=False),
        again(Abandoned, 0, (Trained, -1), aborted=False),
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
