"""What the learner makes of a recorded trajectory's rewards: its advantage, turn by turn.

A record holds rewards of the trajectory and of its turns; advantages are made of them by the
learner and are written nowhere. So they are computed again, by the formulas that the learner uses
(`toolwright.credit`) and with the keys that the run's recipe has for them. Where that is not all
that the learner knew, there is a sentence in place of a number. A test lays the numbers beside
the learner's own. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from toolwright.credit.advantages import Singleton, Std
from toolwright.credit.estimators import ESTIMATORS, EstimatorName, Rewards
from toolwright.credit.turns import (
    LABELLED,
    PADDED_TURNS,
    Branches,
    Scope,
    Several,
    Turns,
    TurnsBy,
    TurnSingleton,
    turn_terms,
)

NO_RECIPE = (
    "The run's folder tells no recipe of a learner, so advantages are not known: they are made of "
    "these rewards and of those of the group below."
)
NEVER_TRAINED = "The learner never got this group, so nothing in it has an advantage."
MASKED = "It carries no loss, so its tokens have no advantage."


class _Advantage(BaseModel):
    """Keys of [learner.advantage] that are read here, as the learner wrote them down."""

    estimator: EstimatorName
    std: Std
    eps: float
    singleton: Singleton
    weights: dict[str, Annotated[float, Field(ge=0)]]


class _Credit(BaseModel):
    """Keys of [learner.credit] that are read here."""

    turns: TurnsBy
    weight: float
    discount: float
    outcome_in_return: bool
    count_in_reward: bool
    std: Std
    singleton: TurnSingleton
    scope: Scope
    several: Several
    ignore: tuple[str, ...]
    first_turn: bool
    padded_turns: int = PADDED_TURNS
    branches: Branches


class _Kl(BaseModel):
    """Keys of [learner.kl] that are read here."""

    coefficient: float
    place: Literal["loss", "reward"]


class _Loss(BaseModel):
    """Keys of [learner.loss] that are read here."""

    kind: str = "ppo"


class Formula(BaseModel):
    """What the recipe says of advantages."""

    advantage: _Advantage
    credit: _Credit
    kl: _Kl
    loss: _Loss = _Loss()

    @classmethod
    def of(cls, learner: Any) -> Formula | None:
        """The table [learner] of a resolved recipe; None for one of another version."""
        try:
            return cls.model_validate(learner)
        except ValidationError:
            return None

    @property
    def words(self) -> str:
        """How a trajectory is compared with its group, in a few words."""
        own = self.advantage
        entry = ESTIMATORS[own.estimator]
        divides = "std" in entry.reads and own.std != "none"
        return entry.formula + (f", over its {own.std} deviation" if divides else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A trajectory of a group, as far as credit goes. turn_rewards: of every turn, 0 where none;
    anchors: by turn, see `Trajectory.anchors`; tokens: that the policy wrote; finite: its rewards
    are numbers, else the learner leaves it out of the group."""

    reward: float
    turn_rewards: tuple[float, ...]
    anchors: Mapping[int, Sequence[str]]
    tokens: int
    masked: bool
    in_baseline: bool
    data_source: str
    finite: bool


def credit_of(
    group: Sequence[Member], own: int, formula: Formula | None, *, trained: bool = True
) -> dict[str, Any]:
    """{"advantage", "formula", "why", "turns"} of the member at this place.

    advantage: the part that all its tokens have, before its turns add theirs, None where it is not
    known; why: the reason then, or what is to be known of it. turns: [{"turn", "reward", "anchors",
    "advantage"}], those that earned something or are compared; advantage: of every token of the
    turn, None where it is not known. trained: the learner got the group.
    """
    member = group[own]
    turns = [
        {"turn": turn, "reward": reward, "anchors": list(member.anchors.get(turn, ()))}
        for turn, reward in enumerate(member.turn_rewards)
    ]
    found: dict[str, Any] = {"advantage": None, "formula": "", "turns": turns}
    if why := _why_not(member, formula, trained):
        return found | {"why": why, "turns": _said(turns)}
    assert formula is not None
    counted = [one for one in group if one.finite]
    place = sum(one.finite for one in group[:own])
    factor = formula.advantage.weights.get(member.data_source, 1.0)
    episode = factor * _episode(counted, formula)[place]
    found |= {"advantage": episode, "formula": formula.words, "why": _also(formula, factor)}
    if formula.credit.turns == "none" or _over_batch(formula.credit):
        return found | {"turns": _said(turns)}
    steps = _steps(counted, formula)[place]
    weight = factor * formula.credit.weight
    told = [
        turn | {"advantage": episode + weight * step}
        for turn, step in zip(turns, steps, strict=True)
    ]
    return found | {"turns": told}


def _why_not(member: Member, formula: Formula | None, trained: bool) -> str:
    """Why its advantage is not known; "" for a known one."""
    if not trained:
        return NEVER_TRAINED
    if member.masked:
        return MASKED
    if not member.finite:
        return "Its reward is no number, so the learner left it out of its group."
    if formula is None:
        return NO_RECIPE
    if formula.loss.kind == "distill":
        return (
            "The recipe's teacher gives each token an advantage, and the learner alone knew the "
            "teacher's log-probs."
        )
    estimator = formula.advantage.estimator
    if ESTIMATORS[estimator].of_groups is None:
        return (
            f"The recipe's estimator, {estimator}, compares it with the whole batch of its step, "
            "which the learner alone had. It is made of these rewards and of those of the batch."
        )
    if formula.kl.coefficient and formula.kl.place == "reward":
        return (
            "The recipe takes the distance to the reference policy off each token's reward, and "
            "the learner alone knew that distance."
        )
    if formula.credit.branches == "hard":
        return "The recipe evens advantages out over branches, which the learner alone did."
    return ""


def _also(formula: Formula, factor: float) -> str:
    """What the number of the trajectory leaves out."""
    told = []
    if factor != 1.0:
        told.append(f"Weighed by {factor:g} for its data source.")
    if formula.credit.count_in_reward:
        told.append("Rewards of turns count in its reward.")
    if formula.credit.turns != "none" and _over_batch(formula.credit):
        told.append(
            "Its turns are compared with those of the whole batch, which the learner alone had: "
            "what they add is not known."
        )
    return " ".join(told)


def _over_batch(credit: _Credit) -> bool:
    return credit.turns in LABELLED and (credit.scope == "batch" or credit.singleton == "batch")


def _said(turns: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that earned something."""
    return [turn | {"advantage": None} for turn in turns if turn["reward"]]


def _episode(group: Sequence[Member], formula: Formula) -> list[float]:
    """By member."""
    of_groups = ESTIMATORS[formula.advantage.estimator].of_groups
    assert of_groups is not None, "see `_why_not`"
    counted = formula.credit.count_in_reward
    given = Rewards(
        rewards=[one.reward + (sum(one.turn_rewards) if counted else 0.0) for one in group],
        groups=[0] * len(group),
        lengths=[one.tokens for one in group],
        in_baseline=[one.in_baseline for one in group],
    )
    return of_groups(given, formula.advantage)


def _steps(group: Sequence[Member], formula: Formula) -> list[list[float]]:
    """By member and turn."""
    members = [
        Turns(
            rewards=one.turn_rewards,
            outcome=one.reward,
            anchors=one.anchors,
            in_baseline=one.in_baseline,
            group=None,
        )
        for one in group
    ]
    return turn_terms(members, formula.credit, eps=formula.advantage.eps)[0]
