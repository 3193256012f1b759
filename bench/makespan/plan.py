"""The plan of a trajectory: what is said, how long it takes, which tokens its record must have.

Pure. Sampler, tool, bare loop and checker all read the same plan. Invariants
- Equal workload and number, equal plan.
- The first two tokens of an action are a checksum of all ids before it. An engine that sends other
  ids than it records gets other tokens than planned.
- The answer of the tool holds a checksum of its call.
- An id below 94 is the printable ASCII character with code id + 33; that is how the tokenizer of
  `bench.dispatch.workload.write_policy` numbers them.
"""

from __future__ import annotations

import heapq
import json
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import ceil
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

from bench.dispatch.workload import END

STOP = "</sleep>"
END_ID, STOP_ID = 256, 257
"""`write_policy` numbers the special tokens after the 256 bytes, in this order."""

RATE = 25.0
"""Tokens a second of one stream, as of a server that thousands share."""
PROMPT_TOKENS = 256

_ANSWER = "<answer>42</answer>"
_LETTERS = b"abcdefghijklmnopqrstuvwxyz"
_TO_LETTER = bytes(_LETTERS[byte % 26] for byte in range(256))
_CALL = re.compile(r"..(\d+)\.(\d+)\.(\d+)\.(\d+)/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal:
    """A draw for every turn, kept between `least` and `most`.

    shared: sigma of a factor that all turns of one trajectory have in common. Above 0, who takes
    long in one turn takes long in all of them.
    """

    median: float
    sigma: float
    least: float
    most: float
    shared: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """What trajectories are made of: any number of turns from `turns[0]` to `turns[1]`; tokens of
    an action, seconds of a tool, tokens of its answer."""

    turns: tuple[int, int]
    action: Lognormal
    tool_s: Lognormal
    answer: Lognormal

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Mix:
        """Of what `asdict` made of one, also by way of JSON."""
        least, most = data["turns"]
        draws = {name: Lognormal(**data[name]) for name in ("action", "tool_s", "answer")}
        return cls(turns=(least, most), **draws)


ANSWER = Lognormal(median=64, sigma=0.6, least=28, most=256)
MIXED = Mix(
    turns=(1, 8),
    action=Lognormal(median=72, sigma=0.6, least=32, most=288),
    tool_s=Lognormal(median=0.5, sigma=1.0, least=0.01, most=15.0),
    answer=ANSWER,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """`trajectories` of them at once, `chunk` tokens a chunk, `rate` tokens a second a stream."""

    trajectories: int
    chunk: int = 8
    rate: float = RATE
    seed: int = 0
    mix: Mix = MIXED

    def action_seconds(self, tokens: int) -> float:
        """What a sampler that is never late takes for an action."""
        return ceil(tokens / self.chunk) * self.chunk / self.rate

    def plans(self) -> list[Plan]:
        return [make_plan(self, number) for number in range(self.trajectories)]

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, file: Path) -> Workload:
        data = json.loads(file.read_text(encoding="utf-8"))
        return cls(**{**data, "mix": Mix.of(data["mix"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One action; `tool_ms` and `answer_tokens` are of its call, 0 where it is the last."""

    action_tokens: int
    tool_ms: int = 0
    answer_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One trajectory. `seconds`: its own time when nobody is late."""

    number: int
    turns: tuple[Turn, ...]
    seconds: float

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
        """Tokens ahead of the action of `turn`."""
        done = self.turns[:turn]
        return PROMPT_TOKENS + sum(t.action_tokens + t.answer_tokens + 2 for t in done)

    def runs(self) -> Iterable[tuple[bool, list[int]]]:
        """(did the policy write them, ids), in the order of the record."""
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


def make_plan(workload: Workload, number: int) -> Plan:
    dice = Random(f"{workload.seed}:{number}")
    mix = workload.mix
    own = Random(f"{workload.seed}:{number}:own")
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
    seconds = sum(workload.action_seconds(t.action_tokens) + t.tool_ms / 1000 for t in turns)
    return Plan(number=number, turns=tuple(turns), seconds=seconds)


def ideal_makespan(plans: Iterable[Plan], places: int) -> float:
    """Seconds when nobody is late: the longest trajectory's own time where all have a place."""
    free = [0.0] * places
    for plan in plans:
        heapq.heapreplace(free, free[0] + plan.seconds)
    return max(free)


def prompt_text(number: int) -> str:
    """The question that names a trajectory."""
    return f"#{number}:".ljust(PROMPT_TOKENS, "p")


def number_of(ids: Sequence[int]) -> int:
    """Which trajectory a sequence belongs to. ValueError where the ids begin with no prompt."""
    head = text_of(ids[:16])
    if not head.startswith("#"):
        raise ValueError(f"ids begin with {head!r}, not with a number")
    return int(head[1:].partition(":")[0])


def read_call(action: str) -> tuple[int, int, int, int]:
    """(trajectory, turn, milliseconds, tokens of the answer). ValueError where it is no call."""
    found = _CALL.match(action)
    if found is None:
        raise ValueError(f"{action[:40]!r} is no planned call")
    number, turn, milliseconds, tokens = map(int, found.groups())
    return number, turn, milliseconds, tokens


def answer_to(action: str) -> str:
    """What the tool answers to the text of an action."""
    number, turn, _, tokens = read_call(action)
    return f"{number}.{turn}.{crc32(action.encode()):08x}.".ljust(tokens, "o")[:tokens]


def ids_of(text: str) -> list[int]:
    """Of printable ASCII without spaces."""
    return [byte - 33 for byte in text.encode()]


def text_of(ids: Sequence[int]) -> str:
    return "".join(_SPECIAL[i] if i in _SPECIAL else chr(i + 33) for i in ids)


_SPECIAL = {END_ID: END, STOP_ID: STOP}
