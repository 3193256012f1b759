"""The reward function of the search family: four parts, each an option.

Parts, all of the whole trajectory: `answer`, `memory`, `query`, `format`; their sum is the reward.
The query part fades with the training step. That is the step of the weights that wrote the
trajectory, which every segment names: a resumed run goes on where it was, and nothing is stored
here. Under `max_staleness` it lags as the rollouts do.

An evaluation is no training: its reward is exact match, whatever the options are, and beside it
stand `f1` and what the agent did. In training what it did is an event (figures.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from engine.api import Score as EngineScore
from tasks.judging import words
from toolwright.types import Purpose, RewardPart, Trajectory

from .dialogue import Dialogue, read
from .figures import measured
from .format import CountMode, Violations, violations
from .prompts import style_of
from .queries import Atomic, Rule, Semantics, atomic
from .rewards import cosine_decay, dense_reward, outcome, query_reward

REFINED = 0.1
"""AutoRefine: for a wrong answer when a refine block has the right one."""


class Score:
    """Options: `style` and `tags` as the protocol has them, `search_tool`, `t_max`.

    The answer: `answer` = "f1" or "em", `set_f1` (equation 10 as printed), `wrong` (of an answer
    that shares nothing with a right one, and of none), `released` = true divides a right answer's 1
    by four where more than ten are written, `f1_threshold` (from which an answer is correct for the
    query part; exact match where it is not given).
    The memory: `memory_weight`, `memory_scope` = "all" or "last", `skip_yes_no`, `refined`: paid
    in place of an answer that is worth nothing when a block of `refined_in` = "memory", "documents"
    or "either" has the right one.
    The queries: `query_weight`, `decay_steps` (0 = no decay), `l_min`, `l_max`,
    `similarity_threshold`, `threshold_semantics`, `query_rule`, `casefold`.
    The format: `format_weight`, `count_mode` = "each" or "per_rule".
    """

    def __init__(
        self,
        *,
        style: str = "se_search",
        tags: Mapping[str, str] | None = None,
        search_tool: str = "search",
        t_max: int = 5,
        answer: Literal["f1", "em"] = "f1",
        set_f1: bool = False,
        wrong: float = 0.0,
        released: bool = False,
        f1_threshold: float | None = None,
        memory_weight: float = 0.1,
        memory_scope: Literal["all", "last"] = "all",
        skip_yes_no: bool = True,
        refined: float = 0.0,
        refined_in: Literal["memory", "documents", "either"] = "memory",
        query_weight: float = 0.01,
        decay_steps: int = 150,
        l_min: int = 10,
        l_max: int = 120,
        similarity_threshold: float = 0.3,
        threshold_semantics: Semantics = "max_ratio",
        query_rule: Rule = "all",
        casefold: bool = False,
        format_weight: float = 0.01,
        count_mode: CountMode = "each",
    ) -> None:
        for name, value, known in (
            ("answer", answer, ("f1", "em")),
            ("memory_scope", memory_scope, ("all", "last")),
            ("refined_in", refined_in, ("memory", "documents", "either")),
            ("count_mode", count_mode, ("each", "per_rule")),
        ):
            if value not in known:
                raise ValueError(f"{name} = {value!r}: write {' or '.join(map(repr, known))}")
        for name, number in (
            ("wrong", wrong),
            ("refined", refined),
            ("memory_weight", memory_weight),
            ("query_weight", query_weight),
            ("format_weight", format_weight),
        ):
            if not isinstance(number, int | float) or not math.isfinite(number):
                raise ValueError(f"{name} = {number!r}: write a finite number")
        if decay_steps < 0 or t_max < 0:
            raise ValueError("decay_steps and t_max are numbers of steps and of turns, from 0 on")
        self._tags = style_of(style, tags).tags
        self._tool, self._t_max = search_tool, t_max
        self._f1, self._multiset = answer == "f1", not set_f1
        self._wrong, self._released, self._threshold = wrong, released, f1_threshold
        self._weights = {
            "memory_weight": memory_weight,
            "query_weight": query_weight,
            "format_weight": format_weight,
        }
        self._last_memory, self._skip_yes_no = memory_scope == "last", skip_yes_no
        self._refined, self._refined_in = refined, refined_in
        self._decay = decay_steps
        self._mode: CountMode = count_mode
        self._atomic = Atomic(
            l_min=l_min,
            l_max=l_max,
            threshold=similarity_threshold,
            semantics=threshold_semantics,
            rule=query_rule,
            casefold=casefold,
        )

    def __call__(self, trajectory: Trajectory) -> EngineScore:
        said = read(trajectory, self._tags, self._tool)
        golds = trajectory.task.answers
        if trajectory.task.purpose is not Purpose.TRAIN:
            return self._evaluated(said, golds)
        n_query = len(atomic(said.queries, self._atomic))
        correct, remembered = self._correct(said, golds), self._remembered(said, golds)
        parts = dense_reward(
            r_ans=self._answer(said, golds),
            r_mem=float(remembered),
            r_query=query_reward(correct=correct, n_query=n_query, t_max=self._t_max),
            r_format=-float(self._violations(said).count(self._mode)),
            mu=self._mu(trajectory),
            **self._weights,
        )
        event = measured(said, right=correct, remembered=remembered, n_query=n_query)
        return EngineScore(
            parts=[_part(name, value) for name, value in parts.items()], events=(event,)
        )

    def _evaluated(self, said: Dialogue, golds: tuple[str, ...]) -> EngineScore:
        figures: dict[str, Any] = {
            "answer": said.answer is not None and words.exact_match(said.answer, golds),
            "f1": words.f1(said.answer or "", golds) if said.answer is not None else 0.0,
            "remembered": self._remembered(said, golds),
            "searches": len(said.queries),
            "atomic": len(atomic(said.queries, self._atomic)),
            "violations": self._violations(said).count(self._mode),
        }
        parts = [_part(name, float(value)) for name, value in figures.items()]
        return EngineScore(reward=float(figures["answer"]), parts=parts)

    def _answer(self, said: Dialogue, golds: tuple[str, ...]) -> float:
        found = said.answer
        if self._f1:
            shared = words.f1(found, golds, multiset=self._multiset) if found is not None else 0.0
            worth = shared or self._wrong
        else:
            worth = outcome(
                correct=found is not None and words.exact_match(found, golds),
                wrong=self._wrong,
                answer_tags=said.answer_tags if self._released else 0,
            )
        return self._refined if worth <= 0 and self._refines(said, golds) else worth

    def _refines(self, said: Dialogue, golds: tuple[str, ...]) -> bool:
        """Whether a right answer stands where AutoRefine pays for it."""
        if not self._refined:
            return False
        notes = said.memories if self._refined_in != "documents" else []
        found = said.documents if self._refined_in != "memory" else ()
        return any(words.cover_match(text, golds) for text in (*notes, *found))

    def _remembered(self, said: Dialogue, golds: tuple[str, ...]) -> bool:
        """Whether the agent noted a right answer. Of yes and no that says nothing: they stand in
        any text."""
        if self._skip_yes_no:
            golds = tuple(gold for gold in golds if words.normalise(gold) not in words.VERDICTS)
        notes = said.memories[-1:] if self._last_memory else said.memories
        return words.cover_match("\n".join(notes), golds)

    def _correct(self, said: Dialogue, golds: tuple[str, ...]) -> bool:
        if said.answer is None:
            return False
        if self._threshold is None:
            return words.exact_match(said.answer, golds)
        return words.f1(said.answer, golds, multiset=self._multiset) >= self._threshold

    def _violations(self, said: Dialogue) -> Violations:
        return violations(
            said.pieces,
            n_search=said.searches,
            t_max=self._t_max,
            invalid_actions=said.invalid_turns,
            tags=self._tags,
        )

    def _mu(self, trajectory: Trajectory) -> float:
        if not self._decay:
            return 1.0
        steps = (version.step for version in trajectory.weight_versions)
        return cosine_decay(max(steps, default=0), self._decay)


def _part(name: str, value: float) -> RewardPart:
    return RewardPart(name=name, value=value or 0.0)
