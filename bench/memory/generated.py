"""Tools and subtasks of random words, common ones as often as in a language."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate, pairwise

from memory.types import GroupWork, RolloutWork, Stats, Tool

WORDS = 8000
LENGTH = 12
"""Words of a description."""


class Generated:
    """The same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        letters = "abcdefghijklmnopqrstuvwxyz"
        self._words = ["".join(self._random.choices(letters, k=7)) for _ in range(WORDS)]
        self._weights = list(accumulate(1 / (place + 10) for place in range(WORDS)))
        self._made = 0

    def text(self, length: int = LENGTH) -> str:
        return " ".join(self._random.choices(self._words, cum_weights=self._weights, k=length))

    def works(self, tools: int, each: int) -> Iterator[GroupWork]:
        """Groups that register `each` tools, and `tools` in all, of two rollouts."""
        for first in range(0, tools, each):
            made = [self._tool() for _ in range(min(each, tools - first))]
            own = RolloutWork(
                trajectory="best",
                candidates=tuple(made),
                used={tool.name: Stats(calls=2, successes=1, seconds=0.1) for tool in made},
                edges=tuple((one.name, other.name, 1) for one, other in pairwise(made)),
            )
            other = RolloutWork(trajectory="other", candidates=(self._tool(),))
            yield GroupWork(
                group=f"group {self._made}", step=first, rollouts=(own, other), registers="best"
            )

    def _tool(self) -> Tool:
        self._made += 1
        name = f"tool_{self._made}"
        lines = "".join(f"    {self.text(2).replace(' ', ' = ')}\n" for _ in range(10))
        return Tool(
            name=name,
            description=self.text(),
            code=f"def {name}(x):\n{lines}    return x\n",
            inputs=('{"x": 1}',),
        )
