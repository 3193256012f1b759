"""Writes the few demonstrations of the warm-up: how to call Python, badly chosen what for.

The demonstrator types the right operator in two calls of five and another one in three. Copying it
gives two right answers in five at best; whatever comes on top has to be learnt from reward.

    python demonstrations.py --output demonstrations.jsonl --seed 1

One line of the file is one conversation, {"messages": [{"role", "content"}, ...]} with the roles
user, assistant and tool: what `engine render` reads.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from task import OPERATIONS, SEEN, Question, questions

from tasks.worlds.demonstrations import Messages, demonstrations_command

RIGHT_OPERATOR = 0.4  # else one of the other three
COUNT = 96


def conversations(seed: int) -> Iterator[Messages]:
    """Endless; drawn apart from what the policy meets in training, from the same numbers."""
    draw = random.Random(f"demonstrator {seed}")
    for question in questions(draw.getrandbits(32), SEEN, held_out=False):
        yield demonstrate(question, draw)


def demonstrate(question: Question, draw: random.Random) -> Messages:
    """One conversation: a tool call and its result copied."""
    sign = question.wording.sign
    if draw.random() >= RIGHT_OPERATOR:
        sign = draw.choice([other for other in OPERATIONS if other != sign])
    result = OPERATIONS[sign](question.a, question.b)
    call = f"<python> print({question.a}{sign}{question.b})</python>"
    return [
        {"role": "user", "content": question.text},
        {"role": "assistant", "content": call},
        {"role": "tool", "content": str(result)},
        {"role": "assistant", "content": f"<answer> {result}</answer>"},
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    demonstrations_command(conversations, "the warm-up's", COUNT, arguments)


if __name__ == "__main__":
    main()
