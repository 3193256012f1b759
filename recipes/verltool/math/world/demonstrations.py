"""Writes the demonstrations that the tiny policy is warmed up on: imperfect on purpose.

The demonstrator knows how a program is written and run, and what goes into the box. It is bad at
what reward can tell:

- two times in five it writes no program and guesses, which is never right;
- one first line in five has the wrong operator;
- for what happens to a load it has a habit, an operator for each sentence that has nothing to do
  with what is asked: right for two sentences of eight.

So one demonstration in eight is right, and the operators of most sentences have to be learnt from
reward. Habits, and not operators drawn at random: those would teach that sentences do not matter.

    python -m toolwright.script world/demonstrations.py --output demonstrations.jsonl --seed 1

One line of the file is one conversation, {"messages": [{"role", "content"}, ...]} with the roles
user, assistant and tool, as `engine render` reads it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

from tasks.worlds.demonstrations import Messages, asks, demonstrations_program, returns, says
from tasks.worlds.questions import OPERATIONS, drawn_until, other

from .task import EVENTS, LOADS, FreightProblem, compute, problems

COUNT = 12_800
GUESSES = 0.4  # without a program
FIRST_WRONG = 0.2
FOLLOWS_HABIT = 0.45  # else one of the other three operators
HABITS: Mapping[str, tuple[str, ...]] = {
    "*": ("+", "*"),
    "+": ("-", "+"),
    "-": ("//", "//"),
    "//": ("*", "-"),
}
"""By the right operator, for its sentences in `EVENTS`; each operator is the habit of two."""


def conversations(seed: int) -> Iterator[Messages]:
    """Endless; independent of what the policy meets in training, from the same numbers."""
    draw = random.Random(f"demonstrator {seed}")
    for problem in problems(draw.getrandbits(32), held=False):
        yield demonstrate(problem, draw)


def demonstrate(problem: FreightProblem, draw: random.Random) -> Messages:
    """One conversation: a program and its output in the box, or a guess."""
    sentences = problem.sentences
    if draw.random() < GUESSES:
        return [asks(problem.text), _answer(_guess(problem, draw))]
    first = sentences.first
    if draw.random() < FIRST_WRONG:
        first = other(draw, LOADS, first)
    second = HABITS[sentences.second][EVENTS[sentences.second].index(sentences.event)]
    if draw.random() >= FOLLOWS_HABIT:
        second = other(draw, OPERATIONS, second)
    printed = compute(first, second, problem.a, problem.b, problem.c)
    action = says(program(problem, first, second))
    return [asks(problem.text), action, returns(printed), _answer(printed)]


def program(problem: FreightProblem, first: str, second: str) -> str:
    """The action that computes (a first b) second c."""
    lines = (f"x = {problem.a}{first}{problem.b}", f"print(x{second}{problem.c})")
    return "```python\n{}\n{}\n```\n```output".format(*lines)


def _guess(problem: FreightProblem, draw: random.Random) -> int:
    """A wrong number of about as many digits as the answer."""
    right = problem.result
    return drawn_until(lambda: draw.randrange(10, 10 * max(right, 10)), lambda one: one != right)


def _answer(number: int) -> dict[str, str]:
    return says(f"\\boxed{{{number}}}")


main = demonstrations_program(conversations, COUNT)
