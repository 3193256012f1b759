"""MTR's reward function: the tier of a trace's answers, and what its repeated calls cost.

In training the parts are `answer` and `repetition`, whose sum is the reward (MTR, equation 3). An
evaluation's reward is exact match of the final answer, whatever the options are, and beside it
stands what the agent did. In training that is an event of the kind `measured`, for the logs alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.api import Score as EngineScore
from tasks.judging import words
from toolwright.types import Event, Purpose, RewardPart, Trajectory

from .rewards import Repetition, Tiers, total_reward
from .traces import Trace, read


class Score:
    """Options: `tiers` (perfect, partial, single, none and soft, over the defaults),
    `single_final_only`, `per_repeat` and `cap` of the penalty."""

    def __init__(
        self,
        *,
        tiers: Mapping[str, float] | None = None,
        single_final_only: bool = False,
        per_repeat: float = 0.1,
        cap: float = 0.5,
    ) -> None:
        """ValueError for tiers that do not descend, and for a name that is none."""
        given = dict(tiers or {})
        unknown = sorted(set(given) - set(Tiers.__slots__))
        if unknown:
            raise ValueError(f"tiers {unknown}: there are {', '.join(Tiers.__slots__)}")
        self._tiers = Tiers(**given)
        self._single_final_only = single_final_only
        self._repetition = Repetition(per_repeat=per_repeat, cap=cap)

    def __call__(self, trajectory: Trajectory) -> EngineScore:
        trace, golds = read(trajectory), trajectory.task.answers
        if trajectory.task.purpose is not Purpose.TRAIN:
            return _evaluated(trace, golds)
        parts = total_reward(
            trace.final,
            trace.intermediate,
            golds,
            (call.text for call in trace.calls),
            tiers=self._tiers,
            repetition=self._repetition,
            single_final_only=self._single_final_only,
        )
        event = Event(kind="measured", turn=0, data=measured(trace, golds))
        return EngineScore(parts=_parts(parts), events=(event,))


def measured(trace: Trace, golds: tuple[str, ...]) -> dict[str, float]:
    """Figures of one trace. One that means nothing for it is left out: `malformed`, the share of
    calls that were refused, without a call; `disagreement`, whether its two answers differ, without
    both; `recovered`, whether all errors were mended, without one."""
    data = {"right": float(_right(trace, golds)), "calls": float(len(trace.calls))}
    if trace.calls:
        refused = sum(call.malformed for call in trace.calls)
        data["malformed"] = refused / len(trace.calls)
    if trace.final is not None and trace.intermediate is not None:
        same = words.normalise(trace.final) == words.normalise(trace.intermediate)
        data["disagreement"] = float(not same)
    if trace.errors:
        data["recovered"] = float(not trace.unrecovered)
    return data


def _evaluated(trace: Trace, golds: tuple[str, ...]) -> EngineScore:
    """Parts are means over all traces. Each rate has a denominator of its own: calls, traces with
    both answers, traces with an error."""
    right = float(_right(trace, golds))
    disagreement = measured(trace, golds).get("disagreement")
    erred = trace.errors > 0
    parts = {
        "answer": right,
        "f1": 0.0 if trace.final is None else words.f1(trace.final, golds),
        "calls": float(len(trace.calls)),
        "erred": float(erred),
    }
    rates = {
        "malformed": [sum(call.malformed for call in trace.calls), len(trace.calls)],
        "disagreement": [disagreement or 0.0, int(disagreement is not None)],
        "recovered": [int(erred and not trace.unrecovered), int(erred)],
    }
    event = Event(kind="rates", turn=0, data=rates)
    return EngineScore(reward=right, parts=_parts(parts), events=(event,))


def _right(trace: Trace, golds: tuple[str, ...]) -> bool:
    return trace.final is not None and words.exact_match(trace.final, golds)


def _parts(values: Mapping[str, float]) -> list[RewardPart]:
    return [RewardPart(name=name, value=value) for name, value in values.items()]
