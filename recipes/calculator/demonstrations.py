"""Writes the demonstrations that the policy is warmed up on: imperfect on purpose.

The demonstrator shows how to use the tool and not what a question asks for. For every wording it
has a habit, one operator that it types most of the time, and the habits have nothing to do with
the question: over the four wordings of an operation each operator is the habit once (a Latin
square), so the habit is right for exactly 4 of the 16 wordings. Sometimes it does not use the
tool at all and guesses. Copying it gives about one right answer in five; whatever comes on top
has to be learnt from reward.

Habits, and not operators drawn at random: random operators would teach the policy that the
wording does not matter, which reward then takes very long to undo.

    python -m toolwright.script demonstrations.py --output demonstrations.jsonl --seed 1

One line of the file is one conversation, {"messages": [{"role", "content"}, ...]} with the roles
user, assistant and tool: what `engine render` reads.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tasks.worlds.demonstrations import Messages, asks, demonstrations_program, returns, says
from tasks.worlds.questions import OPERATIONS, other

from .task import WordProblem, questions

CALLS_TOOL = 0.85  # else it guesses
FOLLOWS_HABIT = 0.45  # else one of the other three operators
GUESSES = range(10, 100_000)
COUNT = 11_200


def habit(operation: str, wording: int) -> str:
    """The operator that the demonstrator likes for a wording."""
    signs = list(OPERATIONS)
    return signs[(signs.index(operation) + wording) % len(signs)]


def conversations(seed: int) -> Iterator[Messages]:
    """Endless; independent of what the policy meets in training, from the same operands."""
    draw = random.Random(f"demonstrator {seed}")
    for question in questions(draw.getrandbits(32), held=False):
        yield demonstrate(question, draw)


def demonstrate(question: WordProblem, draw: random.Random) -> Messages:
    """One conversation: a tool call and its result copied, or a guess."""
    if draw.random() >= CALLS_TOOL:
        return [asks(question.text), says(f"<answer> {draw.choice(GUESSES)}</answer>")]
    sign = habit(question.operation, question.wording)
    if draw.random() >= FOLLOWS_HABIT:
        sign = other(draw, OPERATIONS, sign)
    result = OPERATIONS[sign](question.a, question.b)
    return [
        asks(question.text),
        says(f"<python> print({question.a}{sign}{question.b})</python>"),
        returns(result),
        says(f"<answer> {result}</answer>"),
    ]


main = demonstrations_program(conversations, COUNT)
