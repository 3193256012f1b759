"""Questions of toy worlds as tasks: their form, their split, and files of passages. Pure but for
`write_passages`.

A world says what is asked; this module gives it the form that the engine reads.
"""

from __future__ import annotations

import json
import operator
import random
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from tasks.worlds.encyclopedia import HELD_OUT_SHARE, Encyclopedia, Question, Shape
from tasks.worlds.rounds import in_turn, rounds
from toolwright.script import Output
from toolwright.text.sections import sections
from toolwright.types import StopReason, Task, Trajectory

OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "*": operator.mul,
    "+": operator.add,
    "-": operator.sub,
    "//": operator.floordiv,
}
"""Operations on whole numbers, by their sign in Python."""
EASY, HARD = 1, 2
"""Hops of a question."""
ENCYCLOPEDIA = 1
"""Seed of the facts that policies are asked about; other seeds are other encyclopedias."""
SHAPE = Shape(
    people=160,
    towns=80,
    companies=80,
    rivers=48,
    relations=("birthplace", "employer", "mayor", "river", "founder", "seat"),
    wordings=2,
    notes=True,
)
"""Shape of the encyclopedia that tiny policies learn to search."""
_ONE_ANSWER = re.compile(r"\s*<answer>([^<]*)</answer>\s*")
_OF_ONE_ENCYCLOPEDIA = 48
"""Pairs of questions for demonstrations in one encyclopedia."""

Item = TypeVar("Item")


def question_task(id: str, text: str, *answers: object, source: str, **metadata: Any) -> Task:
    """A task of one question."""
    return Task(
        id=id,
        data_source=source,
        messages=({"role": "user", "content": text},),
        answers=tuple(map(str, answers)),
        metadata=metadata,
    )


def tasks_from(
    name: str,
    questions: Callable[[int], Iterable[Item]],
    task: Callable[[Item, str, str], Task],
) -> Callable[[int], Iterator[Task]]:
    """A source of tasks: the questions of a seed, each by its task's id and the stream's name."""

    def stream(seed: int) -> Iterator[Task]:
        return (task(one, f"{name}-{place}", name) for place, one in enumerate(questions(seed)))

    return stream


def documents(found: Iterable[str]) -> str:
    """What a search tool returns for passages in Search-R1's layout, or for titles and texts."""
    lines = (passage.partition("\n") for passage in found)
    return "\n".join(
        f"Doc {place}(Title: {title.strip(chr(34))}) {text}"
        for place, (title, _, text) in enumerate(lines, 1)
    )


def wordings(file: Path, name: str) -> dict[str, tuple[str, ...]]:
    """Lines of the sections `NAME KEY` of a file beside the world's code, by KEY."""
    return {
        heading.removeprefix(f"{name} "): tuple(text.splitlines())
        for heading, text in sections(file).items()
        if heading.startswith(f"{name} ")
    }


def held_out(*parts: object) -> bool:
    """Whether training never shows this: one in HELD_OUT_SHARE, by a hash, so no digit tells."""
    return zlib.crc32(" ".join(map(str, parts)).encode()) % HELD_OUT_SHARE == 0


def drawn_until(draw: Callable[[], Item], fits: Callable[[Item], bool]) -> Item:
    """The first draw that fits."""
    while not fits(found := draw()):
        pass
    return found


def other(draw: random.Random, all_of: Iterable[Item], one: Item) -> Item:
    """A random item of all but one."""
    return draw.choice([item for item in all_of if item != one])


def exact_answer(trajectory: Trajectory) -> dict[str, float]:
    """A reward: {"correct": 1} if the last turn is one closed answer with the right text, else 0.

    The whole last turn has to fit, and it must have ended. A reward that only looked for the answer
    somewhere would pay a policy that never learns to stop.
    """
    final = _ONE_ANSWER.fullmatch(str(trajectory.metadata["final_text"]))
    ended = trajectory.stop_reason is StopReason.ANSWERED
    correct = ended and final is not None and final[1].strip() in trajectory.task.answers
    return {"correct": float(correct)}


class EasyAndHard(Generic[Item]):
    """Streams of tasks of one hop and of two; each is endless and depends on the seed alone.

    every: all questions of a split ("train" or "heldout") and a number of hops. task: a question
    as a task, by the task's id and its data source, "easy" or "hard".
    """

    def __init__(
        self,
        every: Callable[[str, int], Iterable[Item]],
        task: Callable[[Item, str, str], Task],
    ) -> None:
        self._every, self._task = every, task

    def training(self, seed: int) -> Iterator[Task]:
        """Easy and hard ones in turn."""
        return self._both("train", seed)

    def easy(self, seed: int) -> Iterator[Task]:
        """Easy ones about what training never asks about, nor answers with."""
        return self._tasks("heldout-easy", self._endless("heldout", EASY, seed))

    def hard(self, seed: int) -> Iterator[Task]:
        """The same of two hops."""
        return self._tasks("heldout-hard", self._endless("heldout", HARD, seed))

    def heldout(self, seed: int) -> Iterator[Task]:
        """Both in turn."""
        return self._both("heldout", seed)

    def _both(self, split: str, seed: int) -> Iterator[Task]:
        ways = (self._endless(split, hops, seed) for hops in (EASY, HARD))
        return self._tasks(split, in_turn(*ways))

    def _endless(self, split: str, hops: int, seed: int) -> Iterator[tuple[Item, int]]:
        found = rounds(self._every(split, hops), random.Random(f"{split} {hops} {seed}"))
        return ((one, hops) for one in found)

    def _tasks(self, name: str, stream: Iterator[tuple[Item, int]]) -> Iterator[Task]:
        for number, (one, hops) in enumerate(stream):
            yield self._task(one, f"{name}-{number}", "easy" if hops == EASY else "hard")


def other_encyclopedias(draw: random.Random) -> Iterator[tuple[Encyclopedia, Iterator[Question]]]:
    """Endless: encyclopedias for demonstrations, each with questions of `train`, easy and hard ones
    in turn. No fact is learnt from them by heart."""
    while True:
        book = Encyclopedia(draw.randrange(1 << 32) + ENCYCLOPEDIA + 1, SHAPE)
        easy, hard = (book.questions("train", (hops,)) for hops in (EASY, HARD))
        pairs = zip(range(_OF_ONE_ENCYCLOPEDIA), easy, hard, strict=False)
        yield book, (one for _, *pair in pairs for one in pair)


def write_passages(path: Path, passages: Iterable[Mapping[str, str]]) -> int:
    """Writes passages as JSON lines; returns their number."""
    lines = [json.dumps(one) + "\n" for one in passages]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")
    return len(lines)


def passages_program(passages: Callable[[], Iterable[Mapping[str, str]]]) -> Callable[..., None]:
    """The `main` of a file that writes what the search tool searches: `--output FILE`."""

    def main(*, output: Output) -> None:
        """Write the passages of a world."""
        print(f"{write_passages(output, passages())} passages: {output}")

    return main
