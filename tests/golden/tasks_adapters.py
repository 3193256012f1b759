"""From a golden example's input to `tasks`: thin functions, as in adapters.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tasks.judging import words


def _qa_metrics(prediction: str, golds: list[str]) -> Any:
    return {
        "normalized": words.normalise(prediction),
        "em": int(words.exact_match(prediction, golds)),
        "cem": int(words.cover_match(prediction, golds)),
        "f1": words.f1(prediction, golds),
    }


TASKS_ADAPTERS: dict[str, Callable[..., Any]] = {"sesearch.qa_metrics": _qa_metrics}
