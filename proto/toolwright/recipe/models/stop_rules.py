"""What a recipe may say about a way to end: `keep`, `mask`, `mask:<reward>`, `penalise:<value>`.

The words alone; what they do to a trajectory is `engine.core.rewards.stops`. What they did
stands in the record, and `mask_reasons` reads it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from toolwright.types import Event, StopReason

_NOT_RULED = (
    StopReason.SAMPLER_ERROR,
    StopReason.INFRASTRUCTURE_ERROR,
    StopReason.REWARD_ERROR,
    StopReason.STALE,
    StopReason.CANCELLED,
)
"""The policy had no part in these: there is nothing to keep or to penalise."""
RULED = {reason.name.lower(): reason for reason in StopReason if reason not in _NOT_RULED}
"""Stop reasons that a rule may name, by the word for it."""

_FORMS = '"keep", "mask", "mask:<reward>" or "penalise:<value below 0>"'


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """One rule.

    masked: the trajectory's tokens leave the loss. reward: what its reward becomes, None = stays
    as it is. penalty: what is added to its reward, 0 or below.
    """

    masked: bool = False
    reward: float | None = None
    penalty: float = 0.0


def read_stop_rule(text: str) -> StopRule:
    """ValueError for anything but the four forms."""
    word, colon, number = text.partition(":")
    if not colon and word in ("keep", "mask"):
        return StopRule(masked=word == "mask")
    try:
        value = float(number) if colon else math.nan
    except ValueError:
        value = math.nan
    if math.isfinite(value):
        if word == "mask":
            return StopRule(masked=True, reward=value)
        if word == "penalise" and value < 0:
            return StopRule(penalty=value)
    raise ValueError(f"{text!r}: write {_FORMS}")


def read_stop_rules(table: Mapping[str, str]) -> dict[StopReason, StopRule]:
    """The rules by stop reason. ValueError for a word that names none, or a rule in no form."""
    rules = {}
    for name, text in table.items():
        if name not in RULED:
            raise ValueError(f"{name!r} takes no rule; these do: {', '.join(RULED)}")
        try:
            rules[RULED[name]] = read_stop_rule(text)
        except ValueError as error:
            raise ValueError(f"{name} = {error}") from error
    return rules


def mask_reasons(*, masked: bool, errored: bool, events: Iterable[Event]) -> tuple[str, ...]:
    """Why no token of a recorded trajectory carries loss: the recipe's rules by name,
    `reward_failed`, `infrastructure`, or else `reward`, whose function asked for it. Empty where
    one does.

    errored: its status is ERRORED.
    """
    if not masked:
        return ()
    if errored:
        return ("infrastructure",)
    found: list[str] = []
    for event in events:
        rules = event.data.get("rules")
        if event.kind == "reward_failed":
            found.append("reward_failed")
        elif event.kind == "stop_rules" and event.data.get("masked") and isinstance(rules, list):
            found += map(str, rules)
    return tuple(dict.fromkeys(found)) or ("reward",)
