"""The market: a task in which tools have to be made, and are worth keeping.

Goods are swapped along a ring, apples for beans, beans for coins, and so on; what one of a good
brings of the next one is a rate that no question tells, and each swap brings one more for good
measure. A tool with the right rate answers every later question about that swap, so a policy that
keeps it need not find the rate again. Half of the questions ask for two swaps, one after the other.

Owns the goods, the rates and the split of the questions. Invariants
- A question depends on nothing but the seed and its position.
- No amount of a first good in `heldout` ever stands in `training`.
- Two swaps with each other's rates give something else: a right answer has right tools.

It knows nothing of tokens, tools or how the policy is trained.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tasks.worlds.questions import held_out, question_task, tasks_from
from toolwright.types import Task

GOODS = (
    "apples", "beans", "coins", "dates", "eggs", "figs",
    "grapes", "herbs", "inks", "jars", "kites", "lamps",
)  # fmt: skip
CHOICES = (2, 3, 5, 7)
"""Rates that there are."""
RATES: Mapping[str, int] = dict(zip(GOODS, (3, 5, 2, 7, 5, 2, 7, 3, 2, 5, 3, 7), strict=True))
"""What one of a good brings of the next one."""
AMOUNTS = range(11, 50)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """`amount` of the first good is swapped along `goods`."""

    amount: int
    goods: tuple[str, ...]

    @property
    def text(self) -> str:
        first, second, *rest = self.goods
        then = f", and those for {rest[0]}" if rest else ""
        return f"Swap {self.amount} {first} for {second}{then}."

    @property
    def result(self) -> int:
        amount = self.amount
        for good in self.goods[:-1]:
            amount = swapped(amount, RATES[good])
        return amount


def swapped(amount: int, rate: int) -> int:
    """What an amount of a good brings."""
    return amount * rate + 1


def questions(seed: int, *, held: bool, most: int = 2) -> Iterator[Swap]:
    """Endless rounds; a round asks for every swap, and where `most` is 2 for every two in a row,
    once, in random order."""
    draw = random.Random(f"market {seed}")
    while True:
        round_ = [(start, swaps) for start in range(len(GOODS)) for swaps in range(1, most + 1)]
        draw.shuffle(round_)
        for start, swaps in round_:
            goods = tuple(GOODS[(start + place) % len(GOODS)] for place in range(swaps + 1))
            amounts = [one for one in AMOUNTS if held_out(one, goods[0]) is held]
            yield Swap(amount=draw.choice(amounts), goods=goods)


def _task(one: Swap, id: str, name: str) -> Task:
    return question_task(id, one.text, one.result, source=f"market/{name}")


training = tasks_from("training", lambda seed: questions(seed, held=False), _task)
"""Endless: what the policy may learn from."""
heldout = tasks_from("heldout", lambda seed: questions(seed, held=True), _task)
"""Endless: the same swaps, of amounts that training never shows."""
one_swap = tasks_from("one-swap", lambda seed: questions(seed, held=False, most=1), _task)
"""As `training`, without the questions that take two swaps."""
one_swap_heldout = tasks_from(
    "one-swap-heldout", lambda seed: questions(seed, held=True, most=1), _task
)
"""As `heldout`, without the questions that take two swaps."""
