"""Writes the demonstrations of the warm-up: chat messages of the calculator's demonstrator.

    python -m toolwright.script demonstrations.py --output demonstrations.jsonl --seed 1

The demonstrator has the habits of ../calculator: for half of the wordings its favourite operator
is wrong. Sometimes it guesses without the tool. Each row has the tool, so `engine render` shows it
as an agent's request does.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

from tasks.worlds.demonstrations import Messages, asks, returns, says
from tasks.worlds.questions import OPERATIONS, other
from toolwright.imports import load_file
from toolwright.script import Output

from .calculator import calculate
from .task import CALCULATOR, questions

CALLS_TOOL = 0.9  # else it guesses
FOLLOWS_HABIT = 0.4  # else one of the other three operators
GUESSES = range(10, 100_000)
COUNT = 8_000
TOOL = {
    "type": "function",
    "function": {
        "name": calculate.__name__,
        "description": calculate.__doc__,
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}},
    },
}
habit = load_file(CALCULATOR / "demonstrations.py").habit


def conversations(seed: int) -> Iterator[Messages]:
    """Endless; independent of what the policy meets in training, from the same operands."""
    draw = random.Random(f"demonstrator {seed}")
    for question in questions(draw.getrandbits(32), held=False):
        yield demonstrate(question, draw)


def demonstrate(question: Any, draw: random.Random) -> Messages:
    """One conversation: a call and its result copied, or a guess."""
    if draw.random() >= CALLS_TOOL:
        return [asks(question.text), says(f"{draw.choice(GUESSES)}")]
    sign = habit(question.operation, question.wording)
    if draw.random() >= FOLLOWS_HABIT:
        sign = other(draw, OPERATIONS, sign)
    expression = f"{question.a}{sign}{question.b}"
    result = calculate(expression)
    return [asks(question.text), says(written_call(expression)), returns(result), says(result)]


def written_call(expression: str) -> str:
    """A call as the policy writes it."""
    call = {"name": calculate.__name__, "arguments": {"expression": expression}}
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


def main(*, output: Output, seed: int = 0, count: Annotated[int, "conversations"] = COUNT) -> None:
    """Write the demonstrations of a warm-up."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("w", encoding="utf-8") as file:
        for messages in islice(conversations(seed), count):
            file.write(json.dumps({"messages": messages, "tools": [TOOL]}) + "\n")
    print(f"{count} conversations: {output}")
