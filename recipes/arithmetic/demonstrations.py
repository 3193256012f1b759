"""Writes the few demonstrations of the warm-up: how to call Python, badly chosen what for.

The demonstrator types the right operator in two calls of five and another one in three. Copying it
gives two right answers in five at best; whatever comes on top has to be learnt from reward.

    python -m toolwright.script demonstrations.py --output demonstrations.jsonl --seed 1

One line of the file is one conversation, {"messages": [{"role", "content"}, ...]} with the roles
user, assistant and tool: what `engine render` reads.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tasks.worlds.demonstrations import Messages, asks, demonstrations_program, returns, says
from tasks.worlds.questions import OPERATIONS, other

from .task import SEEN, Sum, questions

RIGHT_OPERATOR = 0.4  # else one of the other three
COUNT = 96


def conversations(seed: int) -> Iterator[Messages]:
    """Endless; independent of what the policy meets in training, from the same numbers."""
    draw = random.Random(f"demonstrator {seed}")
    for question in questions(draw.getrandbits(32), SEEN, held=False):
        yield demonstrate(question, draw)


def demonstrate(question: Sum, draw: random.Random) -> Messages:
    """One conversation: a tool call and its result copied."""
    sign = question.wording.sign
    if draw.random() >= RIGHT_OPERATOR:
        sign = other(draw, OPERATIONS, sign)
    result = OPERATIONS[sign](question.a, question.b)
    return [
        asks(question.text),
        says(f"<python> print({question.a}{sign}{question.b})</python>"),
        returns(result),
        says(f"<answer> {result}</answer>"),
    ]


main = demonstrations_program(conversations, COUNT)
