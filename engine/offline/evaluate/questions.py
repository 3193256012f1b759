"""Which questions an evaluation runs, and how often each.

Invariants
- A subset depends on its seed and on the number of questions alone: two recipes with the same file
  run the same. A larger subset of one seed holds the smaller ones.
- Questions keep the order of their source; the samples of one question follow each other.
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

TASK_SUITE = "task"
"""Name of the suite that stands for task.source in a recipe without suites."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subset:
    """n: questions of each suite, all of a suite that has fewer."""

    n: int
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedSuite:
    """A suite with its chosen questions: `suite.n` rows, `suite.n / questions` of each."""

    suite: Suite
    positions: Sequence[int]
    """Position of each row in the source."""
    questions: int

    @property
    def positions_digest(self) -> str:
        """A hash of the positions. Subsets of equal size may hold different questions."""
        return hashlib.sha256(array("Q", self.positions).tobytes()).hexdigest()[:12]


def select_questions(
    suites: Sequence[Suite], *, subset: Subset | None, samples: int, temperature: float | None
) -> list[SelectedSuite]:
    """The suites with their questions, `samples` rows of each.

    temperature: replaces that of the suites, unless None.
    """
    found = []
    for suite in suites:
        chosen = subset_positions(suite.n, subset)
        positions = array("Q", (at for at in chosen for _ in range(samples)))
        changes: dict[str, object] = {"n": len(positions)}
        if temperature is not None:
            changes["temperature"] = temperature
        found.append(
            SelectedSuite(
                suite=suite.model_copy(update=changes),
                positions=positions,
                questions=len(chosen),
            )
        )
    return found


def subset_positions(n: int, subset: Subset | None) -> Sequence[int]:
    """Positions of a subset among n questions, in order."""
    if subset is None or subset.n >= n:
        return range(n)
    order = array("Q", range(n))
    random.Random(subset.seed).shuffle(order)
    return sorted(order[: subset.n])


async def named_suites(
    recipe: Recipe, evaluation: Evaluation, names: Sequence[str], *, max_bad_rows: int
) -> list[Suite]:
    """The recipe's suites with these names, or all; their `when` plays no part.

    A recipe without suites has one of all rows of task.source. Raises StartupError for an unknown
    name, and if task.source is a function, which has no end.
    """
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
            f"the recipe has no [[engine.evaluation.suites]], and task.source {name} is a function "
            "without end: add a suite with its `n`"
        )
    return Suite(name=TASK_SUITE, source=name, n=rows, seed=recipe.shared.run.seed)
