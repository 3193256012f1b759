"""From a golden example's input to `tasks`: thin functions, as in adapters.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tasks.judging import outcomes, tables, words


def _qa_metrics(prediction: str, golds: list[str]) -> Any:
    return {
        "normalized": words.normalise(prediction),
        "em": int(words.exact_match(prediction, golds)),
        "cem": int(words.cover_match(prediction, golds)),
        "f1": words.f1(prediction, golds),
    }


def _reward_math(correct: bool, tool_used: bool, tool_penalty: float) -> float:
    return outcomes.with_tool_term(correct, tool_used=tool_used, penalty=tool_penalty)


def _reward_sql(correct: bool, format_ok: bool = True) -> float:
    return outcomes.signed(correct, well_formed=format_ok)


def _reward_deepsearch(correct: bool, tool_used: bool, bonus: float) -> float:
    return sum(outcomes.deep_search(correct, tool_called=tool_used, bonus=bonus).values())


def _reward_swe(correct: bool, timed_out: bool = False) -> float:
    return outcomes.solved(correct, ended_normally=not timed_out)


TASKS_ADAPTERS: dict[str, Callable[..., Any]] = {
    "sesearch.qa_metrics": _qa_metrics,
    "verltool.sql_equal": tables.same_rows,
    "verltool.reward_math": _reward_math,
    "verltool.reward_sql": _reward_sql,
    "verltool.reward_deepsearch": _reward_deepsearch,
    "verltool.reward_swe": _reward_swe,
}
