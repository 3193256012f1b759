"""Finds questions of an evaluation that training has too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.config import Suite
from engine.core.tasks.source import TaskSource
from toolwright.recipe import Recipe


class TrainingQuestions:
    """The questions of all training sources, by their hashes."""

    def __init__(self) -> None:
        self._marks: list[tuple[str, frozenset[int]]] = []
        self._functions: set[tuple[str, int]] = set()

    def add(self, recipe: Recipe, source: TaskSource) -> None:
        """Adds the source of the recipe's task."""
        name = recipe.shared.task.source
        if source.index is not None:
            marks = source.index.questions(range(source.rows or 0))
            self._marks.append((name, frozenset(marks)))
        else:
            self._functions.add((name, recipe.shared.run.seed))

    def shared_with(self, suite: Suite, questions: Sequence[int] | None) -> str:
        """A sentence on questions that a suite shares with training; "" without such questions.

        questions: hashes of the suite's questions; None if its source is a function.
        """
        if questions is None:
            if (suite.source, suite.seed) not in self._functions:
                return ""
            return (
                f"{suite.source} with seed {suite.seed} is also a source of training: set the "
                "suite's "
                "seed to another value than run.seed"
            )
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
