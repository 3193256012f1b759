"""The plan of a trajectory: its tokens, its times, and the tokens that its record must have.

Pure. Sampler, tool, loops and checker all read the same plan. Invariants
- Equal work and number give an equal plan.
- The first two tokens of an action are a checksum of all ids before it. An engine that sends other
  ids than it records gets other tokens than planned.
- The answer of the tool holds a checksum of its call.
- An id below 94 is the printable ASCII character with code id + 33, as in the policy's tokenizer.
"""

from __future__ import annotations

import heapq
import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from pathlib import Path
from random import Random
from zlib import crc32

from pydantic import TypeAdapter

END, STOP = "<|im_end|>", "</sleep>"
END_ID, STOP_ID = 256, 257
"""The policy's tokenizer numbers the special tokens after the 256 bytes, in this order."""

PROMPT_TOKENS = 256
SHORTEST_ACTION = 20
"""Tokens. An action holds its call in up to 17 of them."""

_ANSWER = "42"
_LETTERS = b"abcdefghijklmnopqrstuvwxyz"
_TO_LETTER = bytes(_LETTERS[byte % 26] for byte in range(256))
_CALL = re.compile(r"..(\d+)\.(\d+)\.(\d+)\.(\d+)/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal:
    """A draw for every turn, kept between `least` and `most`."""

    median: float
    sigma: float
    least: float
    most: float
    shared: float = 0.0
    """Sigma of a factor that all turns of one trajectory share. Above 0, a trajectory that is slow
    in one turn is slow in all of them."""

    @classmethod
    def fixed(cls, value: float) -> Lognormal:
        """The same value in every turn."""
        return cls(median=value, sigma=0.0, least=value, most=value)

    def times(self, factor: float) -> Lognormal:
        """All draws multiplied by a factor."""
        return replace(
            self, median=self.median * factor, least=self.least * factor, most=self.most * factor
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Distributions of trajectories."""

    turns: tuple[int, int]
    """Least and largest number of turns; each number is equally likely."""
    action: Lognormal
    """Tokens of an action."""
    tool_s: Lognormal
    """Seconds of a tool call."""
    answer: Lognormal
    """Tokens of a tool's answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is played: trajectories that begin at the same instant."""

    trajectories: int
    mix: Mix
    rate: float
    """Tokens a second of one stream."""
    chunk: int = 8
    """Tokens in a chunk of a stream."""
    seed: int = 0
    jitter: float = 0.0
    """Spread of the sampler's pace, a share below 1."""

    def action_seconds(self, tokens: int) -> float:
        """Seconds of an action at a sampler that is never late."""
        return ceil(tokens / self.chunk) * self.chunk / self.rate

    def plans(self) -> list[TrajectoryPlan]:
        return [make_plan(self, number) for number in range(self.trajectories)]

    def write(self, file: Path) -> None:
        file.write_bytes(_WORK.dump_json(self))

    @classmethod
    def read(cls, file: Path) -> Work:
        return _WORK.validate_json(file.read_bytes())


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One action and its call. The last action calls nothing."""

    action_tokens: int
    tool_ms: int = 0
    answer_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class TrajectoryPlan:
    """One trajectory."""

    number: int
    turns: tuple[Turn, ...]
    seconds: float
    """Own time of the trajectory if neither sampler nor tool is late."""

    @cached_property
    def prompt(self) -> list[int]:
        return ids_of(prompt_text(self.number))

    def action(self, turn: int, before: Sequence[int]) -> list[int]:
        """The ids that the policy writes after the ids `before`."""
        planned = self.turns[turn]
        checksum = crc32(array("i", before).tobytes())
        first = ids_of(chr(97 + checksum % 26) + chr(97 + checksum // 26 % 26))
        if turn == len(self.turns) - 1:
            ending = [*ids_of(_ANSWER), END_ID]
        else:
            ending = [STOP_ID]
            call = f"{self.number}.{turn}.{planned.tool_ms}.{planned.answer_tokens}/"
            first += ids_of(call)
        free = planned.action_tokens - len(first) - len(ending)
        dice = Random(checksum)
        letters = dice.randbytes(free).translate(_TO_LETTER)
        return [*first, *(byte - 33 for byte in letters), *ending]

    def answer(self, action: Sequence[int]) -> list[int]:
        """The ids between an action that calls and the next one, the brackets included."""
        return ids_of(f"[{answer_to(text_of(action))}]")

    def length_before(self, turn: int) -> int:
        """Tokens before the action of `turn`."""
        done = self.turns[:turn]
        return PROMPT_TOKENS + sum(t.action_tokens + t.answer_tokens + 2 for t in done)

    def runs(self) -> Iterable[tuple[bool, list[int]]]:
        """(whether the policy wrote them, ids) in the order of the record."""
        ids = self.prompt
        yield False, ids
        ids = list(ids)
        for turn in range(len(self.turns)):
            action = self.action(turn, ids)
            yield True, action
            if turn < len(self.turns) - 1:
                answer = self.answer(action)
                yield False, answer
                ids += action + answer


def make_plan(work: Work, number: int) -> TrajectoryPlan:
    dice = Random(f"{work.seed}:{number}")
    mix = work.mix
    own = Random(f"{work.seed}:{number}:own")
    slow = {draws: own.lognormvariate(0.0, draws.shared) for draws in (mix.action, mix.tool_s)}

    def draw(draws: Lognormal) -> float:
        value = draws.median * slow.get(draws, 1.0) * dice.lognormvariate(0.0, draws.sigma)
        return min(max(value, draws.least), draws.most)

    turns = [
        Turn(
            action_tokens=round(draw(mix.action)),
            tool_ms=round(1000 * draw(mix.tool_s)),
            answer_tokens=round(draw(mix.answer)),
        )
        for _ in range(dice.randint(*mix.turns))
    ]
    turns[-1] = Turn(action_tokens=turns[-1].action_tokens)
    seconds = sum(work.action_seconds(t.action_tokens) + t.tool_ms / 1000 for t in turns)
    return TrajectoryPlan(number=number, turns=tuple(turns), seconds=seconds)


def ideal_makespan(plans: Iterable[TrajectoryPlan], places: int) -> float:
    """Best possible seconds with `places` trajectories in flight. With a place for each, this is
    the longest trajectory's own time."""
    free = [0.0] * places
    for plan in plans:
        heapq.heapreplace(free, free[0] + plan.seconds)
    return max(free)


def barrier_makespan(work: Work, plans: Iterable[TrajectoryPlan]) -> float:
    """Best possible seconds with barriers: the longest action and the longest call of each turn."""
    longest: dict[int, tuple[float, float]] = {}
    for plan in plans:
        for number, turn in enumerate(plan.turns):
            writes, waits = longest.get(number, (0.0, 0.0))
            seconds = work.action_seconds(turn.action_tokens)
            longest[number] = (max(writes, seconds), max(waits, turn.tool_ms / 1000))
    return sum(writes + waits for writes, waits in longest.values())


def prompt_text(number: int) -> str:
    """The question that names a trajectory."""
    return f"#{number}:".ljust(PROMPT_TOKENS, "p")


def number_of(ids: Sequence[int]) -> int:
    """The trajectory of a sequence. Raises ValueError if the ids do not begin with a prompt."""
    head = text_of(ids[:16])
    if not head.startswith("#"):
        raise ValueError(f"ids begin with {head!r}, not with a number")
    return int(head[1:].partition(":")[0])


def read_call(action: str) -> tuple[int, int, int, int]:
    """(trajectory, turn, milliseconds, tokens of the answer). Raises ValueError if the action is
    not a planned call."""
    found = _CALL.match(action)
    if found is None:
        raise ValueError(f"{action[:40]!r} is no planned call")
    number, turn, milliseconds, tokens = map(int, found.groups())
    return number, turn, milliseconds, tokens


def answer_to(action: str) -> str:
    """The tool's answer to the text of an action."""
    number, turn, _, tokens = read_call(action)
    return f"{number}.{turn}.{crc32(action.encode()):08x}.".ljust(tokens, "o")[:tokens]


def ids_of(text: str) -> list[int]:
    """The ids of printable ASCII without spaces."""
    return [byte - 33 for byte in text.encode()]


def text_of(ids: Sequence[int]) -> str:
    return "".join(_SPECIAL[i] if i in _SPECIAL else chr(i + 33) for i in ids)


_SPECIAL = {END_ID: END, STOP_ID: STOP}
_WORK = TypeAdapter(Work)
