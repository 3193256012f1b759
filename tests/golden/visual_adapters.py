"""Golden examples of VerlTool's visual task, of the recipe's own formula."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from toolwright.imports import load_file

FILE = Path(__file__).resolve().parents[2] / "recipes/verltool/visual/rewards.py"


def _visual(
    correct: Sequence[int],
    n_visual_ops: Sequence[int],
    H: float,
    N: int,
    alpha: float,
    beta: float,
) -> Any:
    rewards = load_file(FILE)
    looking = rewards.Looking(rate=H, free=N, curiosity=alpha, cost=beta)
    rate = rewards.looking_rate(n_visual_ops)
    terms = [rewards.looking_reward(count, rate, looking) for count in n_visual_ops]
    return {
        "rapr": rate,
        "rewards": [answer + sum(term) for answer, term in zip(correct, terms, strict=True)],
    }


VISUAL_ADAPTERS: dict[str, Callable[..., Any]] = {"verltool.reward_visual": _visual}
