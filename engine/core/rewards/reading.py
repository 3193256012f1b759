"""Turns the value of a reward function into a Score that the record can hold; pure.

A function of the recipe may return anything. Other values than rewards are refused here, so journal
and learner only get values that they can write and compute with.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, SupportsFloat

from engine.core.rewards.score import Score
from toolwright.types import Event, RewardPart, Trajectory
from toolwright.wire import struct

LARGEST = 3.4028234663852886e38
"""Largest absolute reward: the learner computes in float32."""
MOST_SHOWN = 500
"""Longest value or error in a message, in characters; it goes into logs and records."""


class ScoreRefused(ValueError):
    """The value is not a score of this trajectory."""


def read_score(value: Any, trajectory: Trajectory) -> Score:
    """The score in the value of a reward function.

    The value is a number, a dictionary of parts whose sum is the reward, (number, parts), or a
    Score. Raises ScoreRefused for anything else.
    """
    if isinstance(value, Score):
        if value.reward is None and not value.parts and value.keep is not False:
            raise ScoreRefused("returned a Score with neither reward nor parts")
        return checked(value, trajectory)
    if isinstance(value, tuple) and len(value) == 2:
        total, named = value
        return Score(reward=_number(total), parts=_named(named))
    if isinstance(value, Mapping):
        parts = _named(value)
        return Score(reward=_number(sum(part.value for part in parts)), parts=parts)
    total = _number(value)
    return Score(reward=total, parts=(RewardPart(name="reward", value=total),))


def checked(score: Score, trajectory: Trajectory) -> Score:
    """The same score in the record's own types.

    Raises ScoreRefused for a number that is not finite, an unknown turn or sequence, a negative
    weight, or a text that cannot be written.
    """
    turns = trajectory.turns
    if score.keep not in (None, True, False) or not isinstance(score.outside_baseline, bool):
        raise ScoreRefused("keep is True, False or None, outside_baseline True or False")
    made = Score(
        reward=None if score.reward is None else _number(score.reward),
        parts=tuple(_part(part, turns) for part in _listed(score.parts, "parts")),
        keep=score.keep,
        events=tuple(_event(event, turns) for event in _listed(score.events, "events")),
        anchors=_anchors(score.anchors, turns),
        outside_baseline=score.outside_baseline,
        weights=_weights(score.weights, trajectory),
    )
    _number(made.total)
    return made


def one_each(values: Any, count: int, what: str) -> Sequence[Any]:
    """The list that a function of a group returned. Raises ScoreRefused unless it has `count`
    entries."""
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise ScoreRefused(f"returned {type(values).__name__}, not {count} {what}")
    if len(values) != count:
        raise ScoreRefused(f"returned {len(values)} {what} for {count} trajectories")
    return values


def shown(value: object) -> str:
    """`repr`, cut, as text that every log and record can hold."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 (the value is the recipe's: its repr may do anything)
        text = f"a {type(value).__name__} that has no repr"
    if len(text) > MOST_SHOWN:
        text = f"{text[:MOST_SHOWN]}..."
    return text.encode(errors="replace").decode()


def _part(part: Any, turns: int) -> RewardPart:
    if not isinstance(part, RewardPart):
        raise ScoreRefused(f"parts hold {shown(part)}, not a RewardPart")
    turn = None if part.turn is None else _turn(part.turn, turns, f"part {part.name!r}")
    return RewardPart(name=_text(part.name, "part"), value=_number(part.value), turn=turn)


def _event(event: Any, turns: int) -> Event:
    if not isinstance(event, Event):
        raise ScoreRefused(f"events hold {shown(event)}, not an Event")
    kind = _text(event.kind, "event")
    try:
        struct(event.data)
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise ScoreRefused(f"the data of event {kind!r} are not JSON: {shown(error)}") from error
    # A trajectory that infrastructure ended may have no turns: its events belong to turn 0.
    return Event(
        kind=kind, turn=_turn(event.turn, max(turns, 1), f"event {kind!r}"), data=event.data
    )


def _anchors(anchors: Any, turns: int) -> dict[int, tuple[str, ...]]:
    if not isinstance(anchors, Mapping):
        raise ScoreRefused(f"anchors are {type(anchors).__name__}, not a dictionary by turn")
    found = {}
    for turn, ids in anchors.items():
        number = _turn(turn, turns, "anchors")
        listed = _listed(ids, f"anchors of turn {number}")
        found[number] = tuple(_text(one, f"anchor of turn {number}") for one in listed)
    return found


def _weights(weights: Any, trajectory: Trajectory) -> dict[str, float]:
    if not isinstance(weights, Mapping):
        raise ScoreRefused(f"weights are {type(weights).__name__}, not a dictionary by sequence")
    known = [sequence.id for sequence in trajectory.sequences]
    found = {name: _number(weight) for name, weight in weights.items()}
    for name, weight in found.items():
        if name not in known:
            raise ScoreRefused(f"weights: sequence {shown(name)}; the sequences are {shown(known)}")
        if weight < 0:
            raise ScoreRefused(f"weights: {weight:g} of sequence {name}, which is below 0")
    return found


def _turn(turn: Any, turns: int, where: str) -> int:
    try:
        number = operator.index(turn)
    except TypeError:
        number = -1
    if not 0 <= number < turns:
        there = f"turns 0 to {turns - 1}" if turns else "no turns"
        raise ScoreRefused(f"{where}: turn {shown(turn)}; the trajectory has {there}")
    return number


def _listed(values: Any, where: str) -> Sequence[Any]:
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise ScoreRefused(f"{where} are {type(values).__name__}, not a list")
    return values


def _text(text: Any, where: str) -> str:
    try:
        text.encode()
    except (AttributeError, UnicodeEncodeError) as error:
        raise ScoreRefused(f"{where}: {shown(text)} is not text") from error
    return str(text)


def _named(named: Any) -> tuple[RewardPart, ...]:
    if not isinstance(named, Mapping):
        raise ScoreRefused(f"parts are {type(named).__name__}, not a dictionary")
    return tuple(RewardPart(name=_text(str(k), "part"), value=_number(v)) for k, v in named.items())


def _number(value: Any) -> float:
    """A float from any number, numpy's and torch's included."""
    try:
        number = float(value) if isinstance(value, SupportsFloat) else math.nan
    except (TypeError, ValueError, OverflowError, RuntimeError):  # torch: not one element
        number = math.nan
    if not math.isfinite(number):
        raise ScoreRefused(f"returned {shown(value)}, not a finite number")
    if abs(number) > LARGEST:
        raise ScoreRefused(
            f"returned {number:g}, not a finite number that a float32 holds (3.4e+38 at most)"
        )
    return number
