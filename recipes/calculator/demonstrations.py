"""Writes the demonstrations that the policy is warmed up on: imperfect on purpose.

The demonstrator shows how to use the tool and not what a question asks for. For every wording it
has a habit, one operator that it types most of the time, and the habits have nothing to do with
the question: over the four wordings of an operation each operator is the habit once (a Latin
square), so the habit is right for exactly 4 of the 16 wordings. Sometimes it does not use the
tool at all and guesses. Copying it gives about one right answer in five; whatever comes on top
has to be learnt from reward.

Habits, and not operators drawn at random: random operators would teach the policy that the
wording does not matter, which reward then takes very long to undo.

    python demonstrations.py --output demonstrations.jsonl --seed 1

One line of the file is one conversation, {"messages": [{"role", "content"}, ...]} with the roles
user, assistant and tool: what `engine render` reads.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from task import OPERATIONS, Question, questions

from tasks.worlds.demonstrations import Messages, demonstrations_command

CALLS_TOOL = 0.85  # else it guesses
FOLLOWS_HABIT = 0.45  # else one of the other three operators
GUESSES = range(10, 100_000)
COUNT = 11_200


def habit(operation: str, wording: int) -> str:
    """The operator that the demonstrator likes for a wording."""
    signs = list(OPERATIONS)
    return signs[(signs.index(operation) + wording) % len(signs)]


def conversations(seed: int) -> Iterator[Messages]:
    """Endless; drawn apart from what the policy meets in training, from the same operands."""
    draw = random.Random(f"demonstrator {seed}")
    for question in questions(draw.getrandbits(32), held_out=False):
        yield demonstrate(question, draw)


def demonstrate(question: Question, draw: random.Random) -> Messages:
    """One conversation: a tool call and its result copied, or a guess."""
    asked = {"role": "user", "content": question.text}
    if draw.random() >= CALLS_TOOL:
        return [asked, _answer(draw.choice(GUESSES))]
    sign = habit(question.operation, question.wording)
    if draw.random() >= FOLLOWS_HABIT:
        sign = draw.choice([other for other in OPERATIONS if other != sign])
    result = OPERATIONS[sign](question.a, question.b)
    call = f"<python> print({question.a}{sign}{question.b})</python>"
    return [
        asked,
        {"role": "assistant", "content": call},
        {"role": "tool", "content": str(result)},
        _answer(result),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    demonstrations_command(conversations, "the calculator's", COUNT, arguments)


def _answer(number: int) -> dict[str, str]:
    return {"role": "assistant", "content": f"<answer> {number}</answer>"}


if __name__ == "__main__":
    main()
