"""Golden examples of SE-Search and of VerlTool's search task."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from toolwright.imports import load_file

FOLDER = Path(__file__).resolve().parents[2] / "recipes/se_search"

_DOCUMENTS = re.compile(r"<documents>[^<]*</documents>")


def _of(path: str) -> Any:
    """A name of one of the recipe's files, which import each other by their names."""
    file, name = path.split(".")
    return getattr(load_file(FOLDER / f"{file}.py"), name)


def _ratio(a: str, b: str) -> float:
    found: float = _of("queries.ratio")(a, b)
    return found


def _atomic(queries: Sequence[str], **settings: Any) -> Any:
    names = {
        "threshold": "similarity_threshold",
        "semantics": "threshold_semantics",
        "rule": "query_rule",
    }
    settings = {names.get(name, name): value for name, value in settings.items()}
    kept = _of("queries.atomic")(queries, _of("queries.Atomic")(**settings))
    return {"count": len(kept), "kept": kept}


def _decay(t: int, t_decay: int) -> float:
    found: float = _of("rewards.cosine_decay")(t, t_decay)
    return found


def _dense(t: int, alpha: float, gamma: float, t_decay: int, **parts: float) -> float:
    weights = {"memory_weight": alpha, "query_weight": gamma, "format_weight": gamma}
    found = _of("rewards.dense_reward")(mu=_decay(t, t_decay), **weights, **parts)
    return sum(found.values())


def _format(text: str, n_search: int, t_max: int, invalid_actions: int) -> Any:
    """A text of the examples is the policy's but for its documents."""
    piece, speaker = _of("format.Piece"), _of("format.Speaker")
    own = [piece(speaker=speaker.POLICY, text=words) for words in _DOCUMENTS.split(text)]
    pieces = [own[0]]
    for words in own[1:]:
        pieces += [piece(speaker=speaker.DOCUMENTS), words]
    found = _of("format.violations")(
        pieces,
        n_search=n_search,
        t_max=t_max,
        invalid_actions=invalid_actions,
        tags=_of("format.Tags")(),
    )
    return {
        "too_many_searches": found.too_many_searches,
        "invalid_actions": found.invalid_actions,
        "tag": found.tag,
        "order": found.order,
        "n_rules": found.count(),
        "r_format": -found.count(),
    }


def _query(**given: Any) -> float:
    found: float = _of("rewards.query_reward")(**given)
    return found


def _verltool(**given: Any) -> float:
    found: float = _of("rewards.outcome")(wrong=-1.0, **given)
    return found


SEARCH_ADAPTERS: dict[str, Callable[..., Any]] = {
    "sesearch.similarity_ratio": _ratio,
    "sesearch.atomic_count": _atomic,
    "sesearch.query_reward": _query,
    "sesearch.cosine_decay": _decay,
    "sesearch.dense_reward": _dense,
    "sesearch.format": _format,
    "verltool.reward_search": _verltool,
}
