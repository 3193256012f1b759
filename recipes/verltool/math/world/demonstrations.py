"""Writes the demonstrations that the tiny policy is warmed up on: imperfect on purpose.

The demonstrator knows how a program is written and run, and what goes into the box. It is bad at
what reward can tell:

- two times in five it writes no program and guesses, which is never right;
- one first line in five has the wrong operator;
- for what happens to a load it has a habit, an operator for each sentence that has nothing to do
  with what is asked: right for two sentences of eight.

So one demonstration in eight is right, and the operators of most sentences have to be learnt from
reward. Habits, and not operators drawn at random: those would teach that sentences do not matter.

    python world/demonstrations.py --output demonstrations.jsonl --seed 1

One line of the file is one conversation, {"messages": [{"role", "content"}, ...]} with the roles
user, assistant and tool, as `engine render` reads it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from task import EVENTS, LOADS, OPERATIONS, Problem, compute, problems

from tasks.worlds.demonstrations import Messages, demonstrations_command

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
    """Endless; drawn apart from what the policy meets in training, from the same numbers."""
    draw = random.Random(f"demonstrator {seed}")
    for problem in problems(draw.getrandbits(32), held_out=False):
        yield demonstrate(problem, draw)


def demonstrate(problem: Problem, draw: random.Random) -> Messages:
    """One conversation: a program and its output in the box, or a guess."""
    asked = {"role": "user", "content": problem.text}
    sentences = problem.sentences
    if draw.random() < GUESSES:
        return [asked, _answer(_guess(problem, draw))]
    first = _other(sentences.first, LOADS, draw) if draw.random() < FIRST_WRONG else sentences.first
    second = HABITS[sentences.second][EVENTS[sentences.second].index(sentences.event)]
    if draw.random() >= FOLLOWS_HABIT:
        second = _other(second, OPERATIONS, draw)
    printed = compute(first, second, problem.a, problem.b, problem.c)
    return [
        asked,
        {"role": "assistant", "content": program(problem, first, second)},
        {"role": "tool", "content": str(printed)},
        _answer(printed),
    ]


def program(problem: Problem, first: str, second: str) -> str:
    """The action that computes (a first b) second c."""
    lines = (f"x = {problem.a}{first}{problem.b}", f"print(x{second}{problem.c})")
    return "```python\n{}\n{}\n```\n```output".format(*lines)


def _guess(problem: Problem, draw: random.Random) -> int:
    """Of about as many digits as the answer, and wrong."""
    guess = problem.result
    while guess == problem.result:
        guess = draw.randrange(10, 10 * max(problem.result, 10))
    return guess


def _other(sign: str, signs: Mapping[str, object], draw: random.Random) -> str:
    return draw.choice([other for other in signs if other != sign])


def _answer(number: int) -> dict[str, str]:
    return {"role": "assistant", "content": f"\\boxed{{{number}}}"}


def main(arguments: Sequence[str] | None = None) -> None:
    demonstrations_command(conversations, "the freight yard's", COUNT, arguments)


if __name__ == "__main__":
    main()
