"""Finds questions of an evaluation that training has too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.config import Suite
from engine.core.tasks.source import TaskSource
from toolwright.recipe import Recipe

ROWS = (".jsonl", ".parquet")


class TrainingQuestions:
    """The questions of all training sources, by their hashes."""

    def __init__(self) -> None:
        self._marks: list[tuple[str, Sequence[int]]] = []
        self._functions: set[tuple[str, int]] = set()

    def add(self, recipe: Recipe, source: TaskSource) -> None:
        """Adds the source of the recipe's task."""
        name = recipe.shared.task.source
        if name.endswith(ROWS):
            self._marks.append((name, source.questions))
        else:
            self._functions.add((name, recipe.shared.run.seed))

    def shared_with(self, suite: Suite, file: TaskSource | None) -> str:
        """A sentence on questions that a suite shares with training; "" without such questions.

        file: the suite's source if it is a file.
        """
        if file is None:
            if (suite.source, suite.seed) not in self._functions:
                return ""
            return (
                f"{suite.source} with seed {suite.seed} is also a source of training: set the "
                "suite's "
                "seed to another value than run.seed"
            )
        questions = file.questions[: suite.n]
        own = set(questions)
        for name, marks in self._marks:
            known = own.intersection(marks)
            if known:
                count = sum(mark in known for mark in questions)
                return (
                    f"{count} of {len(questions)} questions are also in the training file "
                    f"{Path(name).name}: the suite measures memorised answers; give it rows of "
                    "its own"
                )
        return ""
