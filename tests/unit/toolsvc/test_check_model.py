"""The model of the contract: driven with values alone, without a service."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from toolsvc.check.model.history import Plan
from toolsvc.check.model.model import Model
from toolsvc.check.model.types import (
    Change,
    Intent,
    ModelCall,
    ModelRefused,
    ModelResult,
    ModelRunning,
    Traits,
)
from toolsvc.check.types import CheckFailed

Step = tuple[Callable[..., None], *tuple[Any, ...]]
"""A method of the model, and its values; the last one is the answer."""

COUNTER = Traits(
    intents=frozenset({Intent.ANY, Intent.EFFECT, Intent.READ, Intent.UNREADABLE, Intent.SLEEP}),
    forks=True,
)
CANCELLED = ModelResult(record=b"c", error="CANCELLED")
SLEEP = ModelCall(0, 1, Intent.SLEEP)
TWICE = [ModelCall(0, 1, Intent.ANY), ModelCall(0, 1, Intent.ANY)]

OPENED = (Model.opened, 0, 0, 0, True)
EFFECT = (Model.called, ModelCall(0, 1, Intent.EFFECT), ModelResult(record=b"1"))
NEXT_TURN = (Model.called, ModelCall(0, 2, Intent.EFFECT, ahead=1), ModelResult(record=b"2"))
ASLEEP = (Model.slept, SLEEP, ModelRunning())
CLOSED = (Model.closed, 0, True)


def model_after(*steps: Step) -> Model:
    model = Model([COUNTER])
    for method, *values in steps:
        method(model, *values)
    return model


ONE, TWO, OTHER = ModelResult(record=b"1"), ModelResult(record=b"2"), ModelResult(record=b"another")
FORGOTTEN, REUSED = ModelRefused("RESULT_FORGOTTEN"), ModelRefused("CALL_ID_REUSED")
AGAIN = (Model.repeated, 0, 1)


@pytest.mark.parametrize(
    ("before", "step", "right", "wrong"),
    [
        ([OPENED, EFFECT], (*AGAIN, Change.NONE), ONE, OTHER),
        ([OPENED, EFFECT], (*AGAIN, Change.LIMITS), ONE, ModelRefused("INTERNAL")),
        ([OPENED, EFFECT], (*AGAIN, Change.TURN), REUSED, ONE),
        ([OPENED, EFFECT, NEXT_TURN], (*AGAIN, Change.NONE), FORGOTTEN, TWO),
        ([OPENED, EFFECT, NEXT_TURN], (Model.repeated, 0, 2, Change.NONE), TWO, FORGOTTEN),
        (
            [OPENED, EFFECT, NEXT_TURN, (*AGAIN, Change.NONE, FORGOTTEN)],
            (*AGAIN, Change.NONE),
            FORGOTTEN,
            ONE,
        ),
        (
            [OPENED, EFFECT],
            (Model.called, ModelCall(0, 2, Intent.READ)),
            ModelResult(record=b"n", number=1),
            ModelResult(record=b"n", number=2),
        ),
        (
            [OPENED, EFFECT, NEXT_TURN],
            (Model.called, ModelCall(0, 3, Intent.EFFECT, ahead=-1)),
            FORGOTTEN,
            ModelResult(record=b"3"),
        ),
        ([OPENED], (Model.opened, 0, 1, 0), ModelRefused("INVALID_REQUEST"), True),
        ([OPENED], (Model.closed, 0), True, False),
        ([OPENED, EFFECT, CLOSED], (*AGAIN, Change.NONE), ModelRefused("SESSION_CLOSED"), ONE),
        ([OPENED, ASLEEP], (*AGAIN, Change.NONE), ModelRunning(), ONE),
        (
            [OPENED, ASLEEP],
            (Model.came_late, ModelCall(0, 2, Intent.ANY)),
            ModelRefused("QUEUE_LIMIT"),
            TWO,
        ),
        ([OPENED, ASLEEP], (Model.cancelled, 0, 1), (True, CANCELLED), (False, None)),
        ([OPENED, EFFECT], (Model.cancelled, 0, 1), (False, None), (True, CANCELLED)),
        ([OPENED, EFFECT, NEXT_TURN], (Model.looked, 0), (1, 2), (2, 1)),
        (
            [OPENED],
            (Model.renewed, 0, (0, 1)),
            (frozenset({0}), frozenset({1})),
            (frozenset({0, -1}), frozenset({1})),
        ),
        (
            [OPENED, EFFECT, (Model.forked, 0, 1, True)],
            (Model.called, ModelCall(1, 1, Intent.EFFECT)),
            REUSED,
            ONE,
        ),
        ([OPENED], (Model.burst, TWICE), [ONE, ONE], [ONE, TWO]),
        ([(Model.listed, b"tools")], (Model.listed,), b"tools", b"others"),
    ],
)
def test_the_model_knows_right_from_wrong(
    before: Sequence[Step], step: Step, right: object, wrong: object
) -> None:
    model_after(*before, (*step, right))
    with pytest.raises(CheckFailed):
        model_after(*before, (*step, wrong))


def test_a_closed_id_is_refused_or_begins_anew() -> None:
    closed = (OPENED, EFFECT, CLOSED)
    model_after(*closed, (Model.opened, 0, 0, 0, ModelRefused("SESSION_CLOSED")))
    read = (Model.called, ModelCall(0, 1, Intent.READ))
    model_after(*closed, OPENED, (*read, ModelResult(record=b"n", number=0)))
    with pytest.raises(CheckFailed):
        model_after(*closed, OPENED, (*read, ModelResult(record=b"n", number=1)))


def test_the_model_does_not_allow_what_the_contract_leaves_open() -> None:
    assert not model_after(OPENED, ASLEEP).allows_call(ModelCall(0, 2, Intent.EFFECT))
    assert not model_after(OPENED, ASLEEP).allows_fork(0, 1)
    assert not model_after(OPENED, EFFECT).allows_call(ModelCall(0, 1, Intent.EFFECT))
    lost = ModelResult(record=b"1", error="CRASHED", lost=True)
    after_loss = model_after(OPENED, (Model.called, ModelCall(0, 1, Intent.ANY), lost))
    assert not after_loss.allows_repeat(0, 1)
    assert not after_loss.allows_request(0)


def test_a_seed_is_a_plan() -> None:
    drawn = [bytes(Random(number).randbytes(6)) for number in range(50)]
    steps = [list(map(Plan(Random(seed), 2).step, drawn)) for seed in (3, 3, 4)]
    assert steps[0] == steps[1]
    assert steps[0] != steps[2]
