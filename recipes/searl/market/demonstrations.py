"""Writes the demonstrations that the tiny policy is warmed up on: imperfect on purpose.

The demonstrator shows the form of plans, steps and answers, and not the rates. For every swap it
has a habit, one rate that it types most of the time; the habits are right for three of the twelve
swaps. It uses a fitting tool that the memory recommends every second time (`--reuses`),
else it makes one of its own. What recommended tools do here has nothing to do with
the market: their rates are drawn anew each time, so that nothing is learnt from them but to read
their answers.

    python -m toolwright.script market/demonstrations.py --output demonstrations.jsonl --seed 1

One line of the file is one conversation, {"messages": [{"role", "content"}, ...]}, as
`engine render` reads it. The words of the prompts are those of the recipe that is
named, and there are no more swaps than its plans have subtasks.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from tasks.worlds.demonstrations import Messages, Transcript, write_conversations
from tasks.worlds.questions import other
from toolwright.recipe import load_recipe
from toolwright.script import Output

from .task import CHOICES, GOODS, RATES, Swap, questions, swapped

RECIPE = Path(__file__).parents[1] / "recipe.toml"
COUNT = 9_600
FOLLOWS_HABIT = 0.45  # else one of the other three rates
REUSES = 0.5
KNOWN = 0.7
"""Share of the conversations in which the memory has tools."""


def habit(good: str) -> int:
    """The rate that the demonstrator likes: right for every fourth good."""
    place = GOODS.index(good)
    return CHOICES[(CHOICES.index(RATES[good]) + place) % len(CHOICES)]


def names(good: str, other: str) -> tuple[str, str]:
    """What a tool for a swap is called, by one or by another."""
    return f"{good}_to_{other}", f"{other}_from_{good}"


def description(good: str, other: str) -> str:
    return f"{other} for {good}"


def conversations(seed: int, recipe: Path = RECIPE, reuses: float = REUSES) -> Iterator[Messages]:
    """Endless; independent of what the policy meets in training, from the same amounts."""
    draw = random.Random(f"demonstrator {seed}")
    options = load_recipe(recipe).shared.task.protocol_options
    for question in questions(draw.getrandbits(32), held=False, most=options["max_subtasks"]):
        yield demonstrate(question, draw, options, reuses)


def demonstrate(
    question: Swap, draw: random.Random, words: Mapping[str, Any], reuses: float
) -> Messages:
    """One conversation: the plan, what the memory recommends, a step for each swap, the answer."""
    swaps = list(zip(question.goods, question.goods[1:], strict=False))
    memory = _memory(swaps, draw)
    lines = [
        words["item"].replace("{name}", name).replace("{description}", description(*swap))
        for name, swap in memory
    ]
    execution = words["execution_prompt"].replace("{question}", question.text)
    told = Transcript(question.text)
    if words["plan_prompt"]:
        told.messages.insert(0, {"role": "system", "content": words["plan_prompt"]})
    told.says(plan(swaps))
    execution = execution.replace("{tools}", "".join(lines) or words["empty"])
    told.messages.append({"role": "system", "content": execution})
    amount = question.amount
    for number, swap in enumerate(swaps, 1):
        fitting = [name for name, offered in memory if offered == swap]
        if fitting and draw.random() < reuses:
            rate = draw.choice(CHOICES)
            action, head = use(number, swap, fitting[0], amount), {}
        else:
            rate = _typed(swap[0], draw)
            free = [name for name in names(*swap) if name not in fitting]
            action = make(number, swap, draw.choice(free), rate, amount)
            head = {"creation_success": True}
        amount = swapped(amount, rate)
        told.says(action)
        told.returns(json.dumps({**head, "execution_result": amount, "stdout": "", "stderr": ""}))
    told.says(step(len(swaps), swaps[-1], f"<answer> \\boxed{{{amount}}} </answer>"))
    return told.messages


def plan(swaps: Sequence[tuple[str, str]]) -> str:
    ids = ", ".join(f"ST{number}" for number, _ in enumerate(swaps, 1))
    listed = f"({ids})" if len(swaps) > 1 else f"({ids},)"
    sections = (
        f"##ST{number}: {good} to {other}\n1. {description(good, other)}"
        for number, (good, other) in enumerate(swaps, 1)
    )
    return "\n".join([f"##DAG_LIST\n[{listed}]", *sections])


def step(number: int, swap: tuple[str, str], action: str) -> str:
    good, other = swap
    return (
        f"<subtask> ST{number}: {good} to {other} </subtask>"
        f"<thinking> {description(good, other)} </thinking>{action}"
    )


def use(number: int, swap: tuple[str, str], name: str, amount: int) -> str:
    return step(number, swap, _call(name, {"n": amount}))


def make(number: int, swap: tuple[str, str], name: str, rate: int, amount: int) -> str:
    given = {
        "name": name,
        "description": description(*swap),
        "arguments": {"n": {"type": "integer"}},
        "returns": "",
        "code": f"def {name}(n):\n    return n * {rate} + 1",
        "inputs": {"n": amount},
    }
    return step(number, swap, _call("create_and_execute", given))


def main(
    *,
    output: Output,
    seed: int = 0,
    count: Annotated[int, "conversations"] = COUNT,
    recipe: Annotated[Path, "whose prompts are written"] = RECIPE,
    reuses: Annotated[float, "share of fitting tools that are used"] = REUSES,
) -> None:
    """Write the market's demonstrations."""
    write_conversations(output, conversations(seed, recipe, reuses), count)
    print(f"{count} conversations: {output}")


def _call(name: str, arguments: Mapping[str, Any]) -> str:
    call = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>{call}</tool_call>"


def _typed(good: str, draw: random.Random) -> int:
    liked = habit(good)
    if draw.random() < FOLLOWS_HABIT:
        return liked
    return other(draw, CHOICES, liked)


def _memory(
    swaps: Sequence[tuple[str, str]], draw: random.Random
) -> list[tuple[str, tuple[str, str]]]:
    """What is recommended: (name, swap), fitting ones and others, three at most."""
    if draw.random() >= KNOWN:
        return []
    ring = zip(GOODS, (*GOODS[1:], GOODS[0]), strict=True)
    every = [swap for swap in ring if swap not in swaps]
    fitting = [swap for swap in swaps if draw.random() < 0.75]
    more = draw.sample(every, draw.randint(0, 3 - len(fitting)))
    found = [(draw.choice(names(*swap)), swap) for swap in (*fitting, *more)]
    draw.shuffle(found)
    return found
