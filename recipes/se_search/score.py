"""The reward function of the search family: four parts, each an option.

Parts, all of the whole trajectory: `answer`, `memory`, `query`, `format`; their sum is the reward.
The query part fades with the training step. That is the step of the weights that wrote the
trajectory, which every segment names: a resumed run goes on where it was, and nothing is stored
here. Under `max_staleness` it lags as the rollouts do.

An evaluation is no training: its reward is exact match, whatever the options are, and beside it
stand `f1` and what the agent did. In training what it did is an event (figures.py).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from engine.api import Score
from tasks.judging import words
from toolwright.types import Purpose, Trajectory

from .dialogue import Dialogue, read
from .figures import measured, rates
from .format import CountMode, Violations, violations
from .prompts import Styled
from .queries import Atomic, atomic
from .rewards import cosine_decay, dense_reward, outcome, query_reward


class SearchReward(Atomic, Styled):
    """The reward function, with its options."""

    search_tool: str = "search"
    t_max: int = Field(5, ge=0)
    answer: Literal["f1", "em"] = "f1"
    set_f1: bool = False
    """F1 of sets of words, as equation 10 is printed."""
    wrong: float = 0.0
    """Worth of an answer that shares nothing with a right one, and of a missing one."""
    released: bool = False
    """Divides a right answer's 1 by four if more than ten are written."""
    f1_threshold: float | None = None
    """F1 from which an answer is correct for the query part; None = exact match."""
    memory_weight: float = 0.1
    memory_scope: Literal["all", "last"] = "all"
    skip_yes_no: bool = True
    refined: float = 0.0
    """Paid in place of a worthless answer if a block of `refined_in` has the right one."""
    refined_in: Literal["memory", "documents", "either"] = "memory"
    query_weight: float = 0.01
    decay_steps: int = Field(150, ge=0)
    """Training steps until the query part is 0; 0 = no decay."""
    format_weight: float = 0.01
    count_mode: CountMode = "each"

    def __call__(self, trajectory: Trajectory) -> Score:
        said = read(trajectory, self.chosen.tags, self.search_tool)
        golds = trajectory.task.answers
        if trajectory.task.purpose is not Purpose.TRAIN:
            return self._evaluated(said, golds)
        n_query = len(atomic(said.queries, self))
        correct, remembered = self._correct(said, golds), self._remembered(said, golds)
        parts = dense_reward(
            r_ans=self._answer(said, golds),
            r_mem=float(remembered),
            r_query=query_reward(correct=correct, n_query=n_query, t_max=self.t_max),
            r_format=-float(self._violations(said).count(self.count_mode)),
            mu=self._mu(trajectory),
            memory_weight=self.memory_weight,
            query_weight=self.query_weight,
            format_weight=self.format_weight,
        )
        figures = measured(
            said, right=correct, remembered=remembered, n_query=n_query, settings=self
        )
        return Score.of(parts, measured=figures)

    def _evaluated(self, said: Dialogue, golds: tuple[str, ...]) -> Score:
        right = said.answer is not None and words.exact_match(said.answer, golds)
        figures = {
            "answer": right,
            "f1": words.f1(said.answer or "", golds) if said.answer is not None else 0.0,
            "remembered": self._remembered(said, golds),
            "searches": len(said.queries),
            "atomic": len(atomic(said.queries, self)),
            "violations": self._violations(said).count(self.count_mode),
        }
        parts = {name: float(value) for name, value in figures.items()}
        return Score.of(parts, reward=float(right), rates=rates(said, self))

    def _answer(self, said: Dialogue, golds: tuple[str, ...]) -> float:
        found = said.answer
        if self.answer == "f1":
            shared = words.f1(found, golds, multiset=not self.set_f1) if found is not None else 0.0
            worth = shared or self.wrong
        else:
            worth = outcome(
                correct=found is not None and words.exact_match(found, golds),
                wrong=self.wrong,
                answer_tags=said.answer_tags if self.released else 0,
            )
        return self.refined if worth <= 0 and self._refines(said, golds) else worth

    def _refines(self, said: Dialogue, golds: tuple[str, ...]) -> bool:
        """Whether a right answer stands where AutoRefine pays for it."""
        if not self.refined:
            return False
        notes = said.memories if self.refined_in != "documents" else []
        found = said.documents if self.refined_in != "memory" else ()
        return any(words.cover_match(text, golds) for text in (*notes, *found))

    def _remembered(self, said: Dialogue, golds: tuple[str, ...]) -> bool:
        """Whether the agent noted a right answer. That says nothing of yes and no, which stand
        in any text."""
        if self.skip_yes_no:
            golds = tuple(gold for gold in golds if words.normalise(gold) not in words.VERDICTS)
        notes = said.memories[-1:] if self.memory_scope == "last" else said.memories
        return words.cover_match("\n".join(notes), golds)

    def _correct(self, said: Dialogue, golds: tuple[str, ...]) -> bool:
        if said.answer is None:
            return False
        if self.f1_threshold is None:
            return words.exact_match(said.answer, golds)
        return words.f1(said.answer, golds, multiset=not self.set_f1) >= self.f1_threshold

    def _violations(self, said: Dialogue) -> Violations:
        return violations(
            said.pieces,
            n_search=said.searches,
            t_max=self.t_max,
            invalid_actions=said.invalid_turns,
            tags=self.chosen.tags,
        )

    def _mu(self, trajectory: Trajectory) -> float:
        if not self.decay_steps:
            return 1.0
        steps = (version.step for version in trajectory.weight_versions)
        return cosine_decay(max(steps, default=0), self.decay_steps)
