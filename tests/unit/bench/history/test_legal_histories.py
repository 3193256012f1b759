"""Faults, retries and gaps in what observers see break no invariant."""

from __future__ import annotations

import pytest

from bench.history.events import (
    Admitted,
    Dispatched,
    Effect,
    Fate,
    FaultsOver,
    Finished,
    History,
    LifeBegan,
    LifeEnded,
    Loaded,
    Offered,
    Planned,
    Position,
    Published,
    Publishing,
    Restored,
    Sampled,
    SessionClosed,
    SessionOpened,
)
from bench.history.validator import violations
from tests.support.histories import A0, B3, valid_history
from tests.support.histories import replaced as changed
from tests.support.history_changes import (
    CALL_4,
    G1,
    G4,
    UNKNOWN,
    Change,
    both,
    cut_at_observation,
    delete,
    dispatched,
    edit,
    effect,
    insert,
    member,
    places,
    request,
    segment,
    session,
    timed,
    without_calls_of_publish,
)
from toolwright.types import WeightVersion, ids

pytestmark = pytest.mark.quick


def test_a_kill_excuses_prompts_that_the_record_lacks() -> None:
    history = edit(LifeEnded, killed=False)(valid_history())
    assert [one.invariant.name for one in violations(history)] == ["prompts_are_prefixes"]


@pytest.mark.parametrize(
    ("stateful", "ends", "excused"),
    [(True, True, True), (False, False, True), (True, False, False)],
)
def test_an_action_in_progress_may_be_sampled_anew(
    stateful: bool, ends: bool, excused: bool
) -> None:
    """A life stops, or a session without state is replaced, while a broken stream is continued."""
    history = edit(Planned, stateful=stateful)(valid_history())
    last = history[places(history, Sampled, attempt=G4)[-1]]
    assert isinstance(last, Sampled)
    lost = [
        changed(last, token_ids=ids([7, 8, 9])),
        changed(last, prompt=ids([*last.prompt, 7, 8]), token_ids=ids()),
    ]
    where = (Sampled, -1, {"attempt": G4})
    history = insert(where, *lost, before=True)(history)
    if ends:
        until = places(history, Sampled, attempt=G4)[-1]
        now = history[until].at
        more: History = [LifeEnded(at=now, life=1, killed=False), LifeBegan(at=now, life=2)]
        history = timed([*history[:until], *more, *history[until:]])
        asked = places(history, Sampled, attempt=G4)[-1]
        history[asked] = changed(history[asked], began=now)
        history = [
            changed(one, life=2)
            if isinstance(one, Dispatched | LifeEnded) and one.at > now
            else one
            for one in history
        ]
    found = [one.invariant.name for one in violations(history)]
    assert ("prompts_are_prefixes" not in found) is excused
    assert not excused or found == []


LEGAL: dict[str, Change] = {
    "the request to open a session came twice": insert(
        (SessionOpened, 0, {"session": session(G4, 1)}),
        SessionOpened(at=0, session=session(G4, 1)),
    ),
    "a session was lost before its first effect, and opened again": insert(
        (SessionOpened, 0, {"session": session(G4, 1)}),
        SessionClosed(at=0, session=session(G4, 1)),
        SessionOpened(at=0, session=session(G4, 1)),
    ),
    "the second service of a task knows the session under its other name": both(
        insert(
            (SessionOpened, 0, {"session": session(G1, 0)}),
            SessionOpened(at=0, session=session(G1, 0) + "~"),
        ),
        edit(Effect, where={"call_id": f"{G1}/0/1"}, session=session(G1, 0) + "~"),
    ),
    "a session without state was replaced, and its call ran again": both(
        edit(Planned, stateful=False),
        insert(
            (Effect, 0, CALL_4),
            SessionClosed(at=0, session=session(G4, 1), by_engine=True),
            SessionOpened(at=0, session=f"owner/{G4}~1@b1"),
            changed(effect(G4, 1, "0/0"), session=f"owner/{G4}~1@b1", action=f"action {G4}/0/0"),
            dispatched(G4, 1),
        ),
    ),
    "a call is dispatched into a session that its host has lost": insert(
        (Effect, 0, CALL_4), SessionClosed(at=0, session=session(G4, 1)), dispatched(G4, 1)
    ),
    "a life dispatches what a life before it dispatched": insert(
        (LifeBegan, 1, {}), dispatched(G1, 1)
    ),
    "a server answers old requests of a closed connection after a publish": lambda history: insert(
        (Sampled, -1, {"attempt": G4}), changed(request(history, G4), version=A0)
    )(history),
    "an observer does not know the attempts": lambda history: [
        changed(one, attempt="") if isinstance(one, Sampled) else one for one in history
    ],
    "the observer of the learner does not see when it publishes": without_calls_of_publish,
    "the observer names the lineage that opens": edit(Restored, lineage="b"),
    "a rewind lowers the bound below what runs": insert(
        (Restored, 0, {}),
        Admitted(at=0, step=2, accepted=4, running=4),
        Admitted(at=0, step=0, accepted=4, running=4),
        Admitted(at=0, step=0, accepted=6, running=2),
    ),
    "a group that is just stored is in both counts": edit(Admitted, -1, accepted=6, running=2),
    "a group goes stale after another one was offered": edit(
        Position, 8, fate=Fate.DROPPED, reason="stale", sequence=9
    ),
    "the run is not complete, and a position has no fate": both(
        edit(Finished, complete=False), delete(FaultsOver), delete(Position, 5)
    ),
    "the observation of the last turn is cut": both(
        edit(Offered, 4, members=member(0, segments=lambda found: cut_at_observation(found))),
        delete(Sampled, -1, attempt=G4),
    ),
    "a masked member carries old tokens": edit(
        Offered, 3, members=member(0, masked=True, segments=segment(1, trainable=True))
    ),
    "the versions of an unpublished lineage carry no loss": both(
        edit(Sampled, -1, where={"attempt": G4}, version=UNKNOWN),
        insert((Published, -1, {}), Publishing(at=0, version=UNKNOWN, parent=B3)),
        edit(
            Offered,
            4,
            members=member(0, segments=segment(-1, version=UNKNOWN, trainable=False)),
        ),
    ),
}


@pytest.mark.parametrize("what", LEGAL)
def test_what_may_happen_breaks_nothing(what: str) -> None:
    assert [str(one) for one in violations(LEGAL[what](valid_history()))] == []


def test_weights_of_servers_before_the_first_policy_are_no_lineage_of_the_run() -> None:
    own = Loaded(at=0, server="s0", version=WeightVersion(lineage="default", step=0))
    history = insert((LifeBegan, 0, {}), own)(valid_history())
    assert violations(history) == ()
    history = [one for one in history if not isinstance(one, Sampled | Effect)]
    assert violations(history) == ()


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


@pytest.mark.parametrize("second_closed_by_engine", [False, True])
def test_the_close_of_an_older_session_excuses_calls_in_a_newer_one(
    second_closed_by_engine: bool,
) -> None:
    """The engine closes a session and opens another; the service loses that one, and the engine
    repeats its call there until it hears of the loss."""
    attempt = "g0000000-0/b0r0a0"
    older, newer = f"owner/{attempt}@1", f"owner/{attempt}@2"
    history: History = [
        Planned(at=0, eta=0, batch=1, group_size=1, steps=1),
        LifeBegan(at=1, life=0),
        SessionOpened(at=2, session=older),
        SessionOpened(at=3, session=newer),
        SessionClosed(at=4, session=older, by_engine=True),
        SessionClosed(at=5, session=newer, by_engine=second_closed_by_engine),
        Dispatched(at=6, life=0, attempt=attempt, call_id=f"{attempt}/0/0"),
    ]
    names = {one.invariant.name for one in violations(history)}
    assert ("no_dispatch_after_close" in names) is second_closed_by_engine
