"""What is said to be read is read, and what is said to be unread changes nothing.

Each key is changed under many settings. Where a loss or an advantage changes with it, no warning
may call it unread; and in every case that is said to read it, something has to change.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import replace
from itertools import cycle, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from learner.config import reads
from learner.config.objective import Advantage, Correction, Credit, Distill, Kl, Loss
from learner.config.tables import LearnerTable, SftTable
from learner.config.weights import Optimizer, Publish
from learner.credit.assign import assigned
from learner.maths.aggregation import token_weights
from learner.maths.correction import judge
from learner.maths.schedule import fraction
from learner.training.batch import MicroBatch
from learner.training.objective import PolicyObjective
from tests.unit.learner.records import Step, group, rows, trajectory
from toolwright.credit.corrections import CORRECTIONS
from toolwright.credit.estimators import ESTIMATORS
from toolwright.credit.losses import AGGREGATIONS, LOSSES
from toolwright.recipe.diagnostics.keys import unread
from toolwright.recipe.layers import Layer
from toolwright.recipe.models.table import ON, Case

Settings = dict[str, Any]
"""Dotted keys of a recipe with their values."""

COUNTS = [3, 4, 2]
ROW = torch.arange(3).repeat_interleave(torch.tensor(COUNTS))
DRAW = torch.Generator().manual_seed(0)


def drawn(scale: float) -> torch.Tensor:
    return torch.randn(len(ROW), generator=DRAW, dtype=torch.float64) * scale


NEW = drawn(0.5) - 2
OLD = NEW + torch.tensor([0.9, -0.9, 2.0, -1.6, 1.2, -0.02, -1.0, 0.1, 0.05]).double()
ROLL = OLD + torch.tensor([1.5, -1.8, 0.4, -2.0, 0.3, 0.2, -0.1, 0.0, -0.6]).double()
ADVANTAGE = torch.tensor([1.0, 1.0, -1.0, -2.0, 1.0, 1.0, -1.0, 1.0, -1.0]).double()


def table(settings: Settings) -> tuple[LearnerTable, str]:
    given: dict[str, Any] = {}
    for key, value in settings.items():
        name, *path, last = key.split(".")
        if name == "learner":
            inner = given
            for part in path:
                inner = inner.setdefault(part, {})
            inner[last] = value
    return LearnerTable.model_validate(given), settings.get("run.correction", "bypass")


def losses_of(settings: Settings) -> Hashable:
    """Token losses, gradients, verdicts and shares under the settings."""
    read, mode = table(settings)
    kl = read.kl if read.kl.place == "loss" else Kl()
    objective = PolicyObjective(loss=read.loss, kl=kl, correction=mode, bounds=read.correction)
    kept = torch.cat([judge((OLD - ROLL)[r == ROW], mode, read.correction).kept for r in range(3)])
    nothing = torch.zeros(len(ROW))
    batch = MicroBatch(
        tokens=ROW[None],
        positions=ROW[None],
        lengths=(len(ROW),),
        index=ROW,
        targets=ROW,
        temperature=nothing,
        behaviour=ROLL,
        advantage=ADVANTAGE,
        weight=nothing,
        fresh=nothing.bool(),
        row=ROW,
        task=torch.zeros_like(ROW),
        old=OLD,
        reference=NEW + OLD / 3,
    )
    logp = NEW.clone().requires_grad_()
    found, _ = objective(batch, logp, -NEW)
    (gradient,) = torch.autograd.grad(found.sum(), logp)
    shares = token_weights(
        COUNTS,
        read.loss.aggregation,
        norm=read.loss.norm,
        trajectories=["a", "a", "b"] if read.loss.unit == "trajectory" else None,
    )
    return (*found.tolist(), *gradient.tolist(), *kept.tolist(), *shares)


GROUPS = [
    group(
        "a",
        trajectory("a0", "a", 1.0, [Step(reward=0.5, anchors=("x",)), Step(anchors=("x", "y"))]),
        trajectory("a1", "a", 0.0, [Step(tokens=3, anchors=("y",)), Step(reward=-0.2)]),
        trajectory("a2", "a", 0.3, [Step(reward=0.1, anchors=("z",)), Step(anchors=("x",))]),
    ),
    group(
        "b",
        trajectory("b0", "b", 2.0, [Step(reward=0.7, anchors=("x",))], source="s"),
        trajectory("b1", "b", 5.0, [Step(anchors=("x",)), Step(reward=0.4)], source="s"),
    ),
    group("c", trajectory("c0", "c", 4.0, [Step(reward=0.3, anchors=("w",))], source="s")),
]
ROWS = [
    replace(
        row,
        reference=np.linspace(-2, -1, len(row.tokens)),
        teacher=np.linspace(-3, -0.5, len(row.tokens)),
    )
    for row in rows(GROUPS)
]


def advantages_of(settings: Settings) -> Hashable:
    read, _ = table(settings)
    done, _ = assigned(ROWS, GROUPS, read.advantage, read.credit, distill=read.distillation)
    return tuple(value for row in done for value in row.advantage[row.target].tolist())


def rates_of(settings: Settings) -> Hashable:
    read, _ = table(settings)
    return tuple(fraction(read.optimizer, step, 10) for step in range(10))


TAUGHT: Settings = {"learner.loss.kind": "distill", "learner.distill.teacher": "t"}
LOSS: list[Settings] = [
    {
        **({**TAUGHT, "learner.distill.reward": True} if kind == "distill" else {}),
        "learner.loss.kind": kind,
        "run.correction": mode,
        "learner.kl.coefficient": kl,
        "learner.kl.place": place,
        "learner.loss.aggregation": aggregation,
    }
    for (kind, mode, (kl, place)), aggregation in zip(
        product(LOSSES, CORRECTIONS, [(0.0, "loss"), (0.1, "loss"), (0.1, "reward")]),
        cycle(AGGREGATIONS),
        strict=False,
    )
]
CREDIT: list[Settings] = [
    {
        "learner.advantage.estimator": estimator,
        "learner.advantage.std": std,
        "learner.advantage.singleton": lone,
        "learner.credit.turns": turns,
        "learner.credit.std": turn_std,
        "learner.credit.scope": scope,
        "learner.credit.singleton": alone,
    }
    for estimator, std, lone, turns, turn_std, scope, alone in product(
        ESTIMATORS,
        ["sample", "none"],
        ["zero", "raw"],
        ["none", "anchor", "position", "group", "alone", "released"],
        ["population", "none"],
        ["prompt", "batch"],
        ["zero", "batch"],
    )
]


def drawn(section: str) -> list[Settings]:
    """Cases of each estimator, drawn by its name: another estimator changes no draw."""
    return [
        case
        for name in ESTIMATORS
        for case in random.Random(f"{section} {name}").sample(
            [one for one in CREDIT if one["learner.advantage.estimator"] == name], 10
        )
    ]


CHANGED: dict[str, Any] = {
    "learner.advantage.std": "population",
    "learner.advantage.eps": 0.3,
    "learner.advantage.singleton": "raw",
    "learner.advantage.discount": 0.5,
    "learner.advantage.per_data_source": True,
    "learner.credit.weight": 0.3,
    "learner.credit.discount": 0.9,
    "learner.credit.outcome_in_return": True,
    "learner.credit.std": "sample",
    "learner.credit.singleton": "raw",
    "learner.credit.scope": "batch",
    "learner.credit.several": "sum",
    "learner.credit.ignore": ("y",),
    "learner.credit.first_turn": True,
    "learner.credit.padded_turns": 9,
    "learner.loss.clip_low": 0.05,
    "learner.loss.clip_high": 0.06,
    "learner.loss.dual_clip": 1.2,
    "learner.loss.tau_positive": 2.0,
    "learner.loss.tau_negative": 3.0,
    "learner.loss.unit": "sequence",
    "learner.loss.norm": 7.0,
    "learner.correction.upper": 1.1,
    "learner.correction.lower": 0.97,
    "learner.correction.decoupled_cap": 1.3,
    "learner.correction.decoupled_cap_mode": "mask",
    "learner.kl.place": "reward",
    "learner.kl.estimator": "k1",
    "learner.distill.coefficient": 0.3,
    "learner.distill.reward": True,
    "learner.optimizer.min_fraction": 0.4,
}
DECAY: list[Settings] = [{"learner.optimizer.decay": d} for d in ("constant", "linear", "cosine")]

OF: Mapping[str, tuple[Callable[[Settings], Hashable], list[Settings]]] = {
    "advantage": (advantages_of, drawn("advantage")),
    "credit": (advantages_of, drawn("credit")),
    "distill": (advantages_of, [{}, TAUGHT]),
    "loss": (losses_of, LOSS),
    "correction": (losses_of, LOSS),
    "kl": (losses_of, LOSS),
    "optimizer": (rates_of, DECAY),
}
ELSEWHERE = (
    "learner.optimizer.muon_lr", "learner.prefetch", "learner.publish.", "learner.loss.per_task",
    "learner.conflict_every", "learner.distill.teacher",
)  # fmt: skip
"""Read by Megatron's optimizers, by the loop, by what publishes, and for several tasks (see
`test_tasks`)."""


def holding(key: str, settings: Settings) -> set[int]:
    """Numbers of the cases of the key that the settings fulfil."""
    defaults = {name: value_of(name) for case in reads.LEARNER[key] for name in case}
    now = {**defaults, **settings}

    def holds(case: Case) -> bool:
        return all(
            bool(now[name]) if case[name] == ON else now[name] in case[name] for name in case
        )

    return {number for number, case in enumerate(reads.LEARNER[key]) if holds(case)}


def value_of(key: str) -> Any:
    """Its default."""
    found: Any = SimpleNamespace(
        run=SimpleNamespace(correction="bypass", max_staleness=0), learner=LearnerTable()
    )
    for part in key.split("."):
        found = getattr(found, part)
    return found


def allowed(settings: Settings) -> Iterator[Settings]:
    """The settings, where the tables take them."""
    try:
        table(settings)
    except ValueError:
        return
    yield settings


_KNOWN: dict[tuple[str, str], Hashable] = {}


@pytest.mark.parametrize("key", [k for k in reads.LEARNER if not k.startswith(ELSEWHERE)])
def test_a_key_is_read_where_it_is_said_to_be(key: str) -> None:
    computed, many = OF[key.split(".")[1]]
    seen: set[int] = set()
    for settings in many:
        before = _KNOWN.setdefault((computed.__name__, repr(settings)), computed(settings))
        for changed in allowed({**settings, key: CHANGED[key]}):
            if computed(changed) != before:
                cases = holding(key, settings)
                assert cases, f"{key} = {CHANGED[key]} is called unread with {settings}"
                seen |= cases if len(cases) == 1 else set()
    assert seen == set(range(len(reads.LEARNER[key]))), f"cases of {key} that read nothing"


def test_without_the_reward_a_teacher_alone_decides() -> None:
    other = {
        "learner.advantage.estimator": "rloo",
        "learner.credit.turns": "position",
        "learner.credit.count_in_reward": True,
        "learner.credit.branches": "hard",
    }
    assert set(reads.OF_REWARDS) == set(other) | {
        key for key in CHANGED if key.startswith(("learner.advantage.", "learner.credit."))
    }
    alone = advantages_of(TAUGHT)
    for key in reads.OF_REWARDS:
        changed = {key: {**CHANGED, **other}[key]}
        for case in (changed, {**CREDIT[0], **other, **changed}):
            assert advantages_of({**case, **TAUGHT}) == alone, key
            assert advantages_of({**case, **TAUGHT, "learner.distill.reward": True}) != alone


def test_every_key_of_the_objective_is_said_or_always_read() -> None:
    always = {
        "advantage": {"estimator", "weights", "zero_groups"},
        "credit": {"turns", "count_in_reward", "branches"},
        "loss": {"kind", "entropy", "aggregation"},
        "correction": {"veto", "reject"},
        "kl": {"coefficient"},
        "distill": set(),
        "optimizer": Optimizer.model_fields.keys() - {"muon_lr", "min_fraction"},
    }
    way = {key for key in reads.LEARNER if key.startswith("learner.publish.")}
    assert way == {f"learner.publish.{key}" for key in Publish.model_fields if key != "way"}
    models = (Advantage, Credit, Loss, Correction, Kl, Distill, Optimizer)
    for (name, rest), model in zip(always.items(), models, strict=True):
        said = {key.split(".")[2] for key in reads.LEARNER if key.startswith(f"learner.{name}.")}
        assert said | set(rest) == model.model_fields.keys()
        assert not said & set(rest)


def test_the_keys_of_imitation_exist() -> None:
    sft = SftTable(data=Path("x"))
    layers = [Layer(source="r", tables={"sft": {"heldout": {"every": 3}}})]
    (warning,) = unread(SftTable.rules[1:], {"sft": sft}, layers)
    assert warning.startswith("sft.heldout.every = 3 does nothing")
    layers = [Layer(source="r", tables={"sft": {"heldout": {"every": 3, "fraction": 0.1}}})]
    held = SftTable.model_validate({"data": "x", "heldout": {"fraction": 0.1}})
    assert list(unread(SftTable.rules[1:], {"sft": held}, layers)) == []
