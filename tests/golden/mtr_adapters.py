"""Golden examples of MTR's recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolwright.imports import load_file
from toolwright.json_data import canonical

FOLDER = Path(__file__).resolve().parents[2] / "recipes/mtr"


def _of(file: str, name: str) -> Any:
    return getattr(load_file(FOLDER / f"{file}.py"), name)


def _filter(**figures: Any) -> Any:
    found = _of("filter", "trace_filter")(**figures)
    return {"keep": found.keep, "reasons": list(found.reasons)}


def _score(final: Any, intermediate: Any, gold: Sequence[str], tiers: Any) -> float:
    made = _of("rewards", "Tiers")(**tiers)
    found: float = _of("rewards", "answer_score")(final, intermediate, gold, made)
    return found


def _penalty(calls: Sequence[Mapping[str, Any]], **how: float) -> float:
    made = _of("rewards", "Repetition")(**how)
    found: float = _of("rewards", "repetition_penalty")(_canonical(calls), made)
    return found


def _total(
    final: Any,
    intermediate: Any,
    gold: Sequence[str],
    calls: Sequence[Mapping[str, Any]],
    tiers: Any,
    **how: float,
) -> float:
    parts: dict[str, float] = _of("rewards", "total_reward")(
        final,
        intermediate,
        gold,
        _canonical(calls),
        tiers=_of("rewards", "Tiers")(**tiers),
        repetition=_of("rewards", "Repetition")(**how),
    )
    return sum(parts.values())


def _canonical(calls: Sequence[Mapping[str, Any]]) -> list[str]:
    return [canonical([call["name"], call["arguments"]]) for call in calls]


MTR_ADAPTERS: dict[str, Callable[..., Any]] = {
    "mtr.trace_filter": _filter,
    "mtr.answer_score": _score,
    "mtr.repetition_penalty": _penalty,
    "mtr.total_reward": _total,
}
