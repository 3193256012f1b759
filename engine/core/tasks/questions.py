"""Whether an evaluation asks what training has seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.config import Suite
from engine.core.tasks.source import TaskSource
from toolwright.recipe import Recipe

ROWS = (".jsonl", ".parquet")


class Questions:
    """The questions of all training sources, by their marks."""

    def __init__(self) -> None:
        self._marks: list[tuple[str, Sequence[int]]] = []
        self._functions: set[tuple[str, int]] = set()

    def add(self, recipe: Recipe, source: TaskSource) -> None:
        """source: that of recipe's task."""
        name = recipe.shared.task.source
        if name.endswith(ROWS):
            self._marks.append((name, source.questions))
        else:
            self._functions.add((name, recipe.shared.run.seed))

    def shared_with(self, suite: Suite, file: TaskSource | None) -> str:
        """A sentence on questions of a suite that training has too; "" for none.

        file: the suite's source where it is a file.
        """
        if file is None:
            if (suite.source, suite.seed) not in self._functions:
                return ""
            return (
                f"{suite.source} with seed {suite.seed} is what training asks, too: set the "
                "suite's seed to another than run.seed"
            )
        asked = file.questions[: suite.n]
        own = set(asked)
        for name, marks in self._marks:
            known = own.intersection(marks)
            if known:
                count = sum(mark in known for mark in asked)
                return (
                    f"{count} of {len(asked)} questions are in the training file "
                    f"{Path(name).name}, too: the suite measures what was trained on; give it "
                    "rows of its own"
                )
        return ""
