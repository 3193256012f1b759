"""A recipe with variations, and the runs of its ladder as `toolwright ablate` leaves them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from console.ablate import begun
from console.ablate.ladder import Ladder, LadderOptions, ladder_of
from console.ablate.results.figures import figures
from console.ablate.standing import standing
from console.record.course import CourseLog
from tests.support.recipes import merged, to_toml
from tests.support.run_folders import course, evaluation, lines, step

STEPS = 20
ABLATIONS = [
    {"name": "slow", "set": ["learner.optimizer.lr=1e-7"]},
    {"name": "no credit", "set": ["learner.credit.weight=0.0", "learner.kl.coefficient=0.1"]},
]
TABLES: dict[str, Any] = {
    "run": {"name": "own", "folder": "run", "steps": STEPS, "groups_per_step": 1, "group_size": 2},
    "policy": {"model": "run/warm"},
    "task": {"source": "task.py:questions", "reward": "./task.py:score"},
    "sampler": {"endpoints": ["http://127.0.0.1:0"]},
    "learner": {"optimizer": {"lr": 1e-4}},
    "render": {"model": "base", "conversations": "rows.jsonl", "output": "run/rows.tr"},
    "sft": {"model": "base", "data": "run/rows.tr", "output": "run/warm", "steps": 2},
    "console": {"ablations": ABLATIONS},
}

Rewards = Callable[[int], float]
"""By the step."""


def write_recipe(folder: Path, **changes: Any) -> Path:
    """With a warm-up in the run folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "task.py").touch()
    (folder / "rows.jsonl").touch()
    (folder / "base").mkdir(exist_ok=True)
    file = folder / "recipe.toml"
    file.write_text(to_toml(merged(TABLES, changes)), encoding="utf-8")
    return file


def ladder(recipe: Path, **options: Any) -> Ladder:
    return ladder_of(LadderOptions(recipe=recipe, **options))


def leave(
    ladder: Ladder,
    name: str,
    seed: int,
    rewards: Rewards | Sequence[Any],
    *,
    scores: Iterable[tuple[str, int, float]] = (),
    ended: int | None = 0,
    sentence: str = "",
    **more: Any,
) -> Path:
    """A run that is over. scores: (suite, step, mean reward). ended: its exit status."""
    rung = next(r for r in ladder.rungs if (r.variation.name, r.seed) == (name, seed))
    run = rung.folder
    begun.note(rung)
    values = list(rewards) if isinstance(rewards, Sequence) else list(map(rewards, range(STEPS)))
    lines(
        run / "learner.jsonl",
        (step(n, reward=value, **{"reward/correct": value}, **more)
         for n, value in enumerate(values, 1)),
    )  # fmt: skip
    if scores:
        rows = [
            evaluation(suite, at, value, n=100, parts={"correct": value / 2})
            for suite, at, value in scores
        ]
        lines(run / "evaluations.jsonl", rows)
    (run / "final").mkdir(exist_ok=True)
    course(run, ended=None)
    if ended is not None:
        with CourseLog(run) as log:
            log.ended(ended, sentence)
    return run


def climb(ladder: Ladder, seed: int, name: str, *, height: float, late: int, **more: Any) -> Path:
    """A run whose reward rises to `height` from step `late` on, with a seed's own noise."""
    draw = random.Random(f"{seed} {name}")

    def reward(at: int) -> float:
        return height * min(1.0, at / late) + 0.01 * seed + draw.uniform(-0.002, 0.002)

    ends = [(f"heldout-{way}", at, height * (at > 0) + seed / 100)
            for way in ("sampled", "greedy") for at in (0, STEPS)]  # fmt: skip
    return leave(ladder, name, seed, reward, scores=ends, **more)


def told(ladder: Ladder) -> dict[str, Any]:
    """The figures of what is there."""
    runs = {
        one.name: [standing(r, None) for r in ladder.rungs if r.variation is one]
        for one in ladder.variations
    }
    return figures(ladder, runs)
