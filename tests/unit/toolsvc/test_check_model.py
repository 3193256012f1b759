"""The model of the contract: driven with values alone, without a service."""

from collections.abc import Sequence

import pytest

from toolsvc.check.model.generator import history
from toolsvc.check.model.model import Model, Traits
from toolsvc.check.model.shrinking import shortened
from toolsvc.check.model.steps import (
    Again,
    Burst,
    Call,
    Cancel,
    Cancelled,
    Change,
    Close,
    Closed,
    Deed,
    Fork,
    Late,
    Leases,
    Look,
    Open,
    Opened,
    Refused,
    Renew,
    Result,
    Results,
    Running,
    Seen,
    Sleep,
    Step,
    Told,
    pieces_of,
)
from toolsvc.check.names import near_misses
from toolsvc.check.types import CheckFailed

COUNTER = Traits(
    deeds=frozenset({Deed.ANY, Deed.EFFECT, Deed.READ, Deed.UNREADABLE}), sleeps=True, forks=True
)
OPENED = (Open(0, 0), Opened(same=True))
EFFECT = (Call(0, 1, Deed.EFFECT), Result(record=b"1"))
NEXT_TURN = (Call(0, 2, Deed.EFFECT, ahead=1), Result(record=b"2"))
ASLEEP = (Sleep(0, 1), Running())
CANCELLED = Result(record=b"c", error="CANCELLED")


def model_after(*told: tuple[Step, Seen]) -> Model:
    model = Model([COUNTER])
    for step, seen in told:
        assert model.allows(step), step
        model.follow(step, seen)
    return model


@pytest.mark.parametrize(
    ("before", "step", "right", "wrong"),
    [
        ([OPENED, EFFECT], Again(0, 1), Result(record=b"1"), Result(record=b"another")),
        ([OPENED, EFFECT], Again(0, 1, Change.LIMITS), Result(record=b"1"), Refused("INTERNAL")),
        ([OPENED, EFFECT], Again(0, 1, Change.TURN), Refused("CALL_ID_REUSED"), EFFECT[1]),
        ([OPENED, EFFECT, NEXT_TURN], Again(0, 1), Refused("RESULT_FORGOTTEN"), NEXT_TURN[1]),
        ([OPENED, EFFECT, NEXT_TURN], Again(0, 2), NEXT_TURN[1], Refused("RESULT_FORGOTTEN")),
        (
            [OPENED, EFFECT, NEXT_TURN, (Again(0, 1), Refused("RESULT_FORGOTTEN"))],
            Again(0, 1),
            Refused("RESULT_FORGOTTEN"),
            Result(record=b"1"),
        ),
        (
            [OPENED, EFFECT],
            Call(0, 2, Deed.READ),
            Result(record=b"n", number=1),
            Result(record=b"n", number=2),
        ),
        (
            [OPENED, EFFECT, NEXT_TURN],
            Call(0, 3, Deed.EFFECT, ahead=-1),
            Refused("RESULT_FORGOTTEN"),
            Result(record=b"3"),
        ),
        ([OPENED], Open(0, 1), Refused("INVALID_REQUEST"), Opened(same=True)),
        ([OPENED], Close(0), Closed(was_open=True), Closed(was_open=False)),
        (
            [OPENED, EFFECT, (Close(0), Closed(was_open=True))],
            Again(0, 1),
            Refused("SESSION_CLOSED"),
            Result(record=b"1"),
        ),
        ([OPENED, ASLEEP], Again(0, 1), Running(), Result(record=b"1")),
        ([OPENED, ASLEEP], Late(0, 2), Refused("QUEUE_LIMIT"), Result(record=b"2")),
        ([OPENED, ASLEEP], Cancel(0, 1), Cancelled(True, CANCELLED), Cancelled(False)),
        ([OPENED, EFFECT], Cancel(0, 1), Cancelled(False), Cancelled(True, CANCELLED)),
        ([OPENED, EFFECT, NEXT_TURN], Look(0), Told((1, 2)), Told((2, 1))),
        (
            [OPENED],
            Renew(0, (0, 1)),
            Leases(frozenset({0}), frozenset({1})),
            Leases(frozenset({0, -1}), frozenset({1})),
        ),
        (
            [OPENED, EFFECT, (Fork(0, 1), Opened(same=True))],
            Call(1, 1, Deed.EFFECT),
            Refused("CALL_ID_REUSED"),
            Result(record=b"1"),
        ),
        (
            [OPENED],
            Burst((Call(0, 1, Deed.ANY), Call(0, 1, Deed.ANY))),
            Results((Result(record=b"1"), Result(record=b"1"))),
            Results((Result(record=b"1"), Result(record=b"2"))),
        ),
    ],
)
def test_the_model_knows_right_from_wrong(
    before: Sequence[tuple[Step, Seen]], step: Step, right: Seen, wrong: Seen
) -> None:
    model_after(*before, (step, right))
    with pytest.raises(CheckFailed):
        model_after(*before, (step, wrong))


def test_a_closed_id_is_refused_or_begins_anew() -> None:
    closed = (OPENED, EFFECT, (Close(0), Closed(was_open=True)))
    model_after(*closed, (Open(0, 0), Refused("SESSION_CLOSED")))
    anew = (*closed, OPENED)
    model_after(*anew, (Call(0, 1, Deed.READ), Result(record=b"n", number=0)))
    with pytest.raises(CheckFailed, match="the counter is 1, not 0"):
        model_after(*anew, (Call(0, 1, Deed.READ), Result(record=b"n", number=1)))


def test_what_the_contract_leaves_open_is_not_asked() -> None:
    assert not model_after(OPENED, ASLEEP).allows(Call(0, 2, Deed.EFFECT))
    assert not model_after(OPENED, ASLEEP).allows(Fork(0, 1))
    assert not model_after(OPENED, EFFECT).allows(Call(0, 1, Deed.EFFECT))
    lost = Result(record=b"1", error="CRASHED", lost=True)
    assert not model_after(OPENED, (Call(0, 1, Deed.ANY), lost)).allows(Again(0, 1))


def steps_of(seed: int) -> list[Step]:
    """Of a service that answers nothing, so that no session is ever open."""
    return list(history(seed, Model([COUNTER])))


def test_a_seed_is_a_history() -> None:
    assert steps_of(3) == steps_of(3)
    assert steps_of(3) != steps_of(4)


async def test_a_history_is_shortened_to_what_it_needs() -> None:
    burst = Burst(tuple(Call(0, label, Deed.EFFECT) for label in range(16)))
    steps: list[Step] = [Open(0, 0), Look(0), Open(1, 0), burst, Look(1), Close(0), Look(0)]

    async def still(steps: Sequence[Step]) -> Sequence[Step] | None:
        """Fails where call 11 was made before session 0 was closed."""
        made = False
        for at, step in enumerate(steps):
            made = made or (isinstance(step, Burst) and any(one.label == 11 for one in step.calls))
            if made and step == Close(0):
                return steps[: at + 1]
        return None

    shorter = await shortened(steps, still, pieces_of)
    assert shorter == [Burst((Call(0, 11, Deed.EFFECT),)), Close(0)]


def test_near_misses_are_names_of_their_own() -> None:
    names = near_misses("owner/session")
    assert len(set(names)) == len(names)
    assert "owner/session" in names
    assert len({name.casefold() for name in names}) < len(names)
    assert len({name[:255] for name in names}) < len(names)
