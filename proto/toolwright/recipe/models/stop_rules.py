"""Rules of a recipe for stop reasons: `keep`, `mask`, `mask:<reward>`, `penalise:<value>`.

This module reads the rules; `engine.core.rewards.stops` applies them to a trajectory. The record
holds their effect, which `mask_reasons` reads.
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
"""Reasons that the policy has no part in: there is nothing to keep or to penalise."""
RULED = {reason.name.lower(): reason for reason in StopReason if reason not in _NOT_RULED}
"""Stop reasons that a rule may name, by the word for it."""

_FORMS = '"keep", "mask", "mask:<reward>" or "penalise:<value below 0>"'


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """One rule for a trajectory that ends for a reason."""

    masked: bool = False
    """Its tokens leave the loss."""
    reward: float | None = None
    """Its new reward; None = unchanged."""
    penalty: float = 0.0
    """Number that is added to its reward, 0 or below."""


def read_stop_rule(text: str) -> StopRule:
    """The rule of a text. Raises ValueError for a text in none of the four forms."""
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
    """The rules by stop reason. Raises ValueError for an unknown reason or form."""
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
    """Why no token of a recorded trajectory carries loss: names of the recipe's rules,
    `reward_failed`, `infrastructure`, or else `reward`, for the reward function. Empty if a token
    does.

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
