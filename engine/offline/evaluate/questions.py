"""Which questions an evaluation asks, and how often each.

Invariants
- A subset depends on its seed and on the number of questions alone: two recipes with the same file
  ask the same. A larger subset of one seed holds the smaller ones.
- Questions are asked in the order of their source, the samples of one question side by side.
"""

from __future__ import annotations

import hashlib
import random
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from engine.config import Evaluation, Suite
from engine.core.tasks import TaskSource
from engine.errors import StartupError
from toolwright.recipe import Recipe

OF_TASK = "task"
"""The suite's name where the recipe has none and its training source is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subset:
    """n: questions of each suite, all of a suite that has fewer."""

    n: int
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A suite as it is asked: `suite.n` rows, each at its position of the source. questions: how
    many, each of them `suite.n / questions` times."""

    suite: Suite
    positions: Sequence[int]
    questions: int

    @property
    def drawn(self) -> str:
        """The same for the same positions of a source. Their number alone does not tell: the
        subset of a longer suite has other questions."""
        return hashlib.sha256(array("Q", self.positions).tobytes()).hexdigest()[:12]


def ask(
    suites: Sequence[Suite], *, subset: Subset | None, samples: int, temperature: float | None
) -> list[Asked]:
    """The suites' questions. samples: of each question. temperature: in place of the suites'."""
    found = []
    for suite in suites:
        chosen = chosen_of(suite.n, subset)
        positions = array("Q", (at for at in chosen for _ in range(samples)))
        changes: dict[str, object] = {"n": len(positions)}
        if temperature is not None:
            changes["temperature"] = temperature
        found.append(
            Asked(
                suite=suite.model_copy(update=changes),
                positions=positions,
                questions=len(chosen),
            )
        )
    return found


def chosen_of(n: int, subset: Subset | None) -> Sequence[int]:
    """The places of a subset among n questions, in order."""
    if subset is None or subset.n >= n:
        return range(n)
    order = array("Q", range(n))
    random.Random(subset.seed).shuffle(order)
    return sorted(order[: subset.n])


async def suites_of(
    recipe: Recipe, evaluation: Evaluation, names: Sequence[str], *, max_bad_rows: int
) -> list[Suite]:
    """Those of the recipe, whatever their `when`; only the named ones where there are names. Where
    the recipe has none, all rows of task.source. StartupError for a name that is none, and where
    there is nothing to ask."""
    suites = list(evaluation.suites) or [await _of_task(recipe, max_bad_rows=max_bad_rows)]
    known = [suite.name for suite in suites]
    for name in names:
        if name not in known:
            raise StartupError(f"--suite {name}: the recipe's suites are {', '.join(known)}")
    return [suite for suite in suites if not names or suite.name in names]


async def _of_task(recipe: Recipe, *, max_bad_rows: int) -> Suite:
    name = recipe.shared.task.source
    source = await TaskSource.opened(
        name, recipe.folder, seed=recipe.shared.run.seed, shuffle=False, max_bad_rows=max_bad_rows
    )
    rows = source.rows
    source.close()
    if rows is None:
        raise StartupError(
            f"nothing to evaluate: the recipe has no [[engine.evaluation.suites]], and task.source "
            f"{name} is a function, which has no end: add a suite with its `n`"
        )
    return Suite(name=OF_TASK, source=name, n=rows, seed=recipe.shared.run.seed)
