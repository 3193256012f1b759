"""What a crowd of trajectories does: tasks, and the plan of each trajectory.

Engine, tool service and sampler import this module, each in its own process; the tests compare
records with the same plan. The environment variable `CHAOS_WORKLOAD` holds a `Workload` as JSON.

Invariants
- What a trajectory says depends on its name and on all ids before, never on attempts or time. An
  engine that sends other ids than it records gets other words than planned.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from random import Random
from zlib import crc32

from bench.engine.plan import END_ID, STOP_ID, ids_of, text_of
from toolwright.types import Task, Trajectory

VARIABLE = "CHAOS_WORKLOAD"
PROMPT_TOKENS = 64
ANSWER_TOKENS = 24
LAST_WORDS = "<answer>42</answer>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Ranges of calls a trajectory, of tokens an action, and of seconds a call.

    effects: file of the tool's events. cache: URL of the cache that the tool keeps its answers in;
    "" = no cache."""

    effects: str = ""
    cache: str = ""
    calls: tuple[int, int] = (2, 5)
    tokens: tuple[int, int] = (32, 56)
    call_s: tuple[float, float] = (0.05, 0.4)
    stateful: bool = True

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def here(cls) -> Workload:
        """This process's."""
        fields = json.loads(os.environ.get(VARIABLE, "{}"))
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})

    def plan(self, trajectory: str) -> Plan:
        dice = Random(f"plan of {trajectory}")
        calls = dice.randint(*self.calls)
        return Plan(
            trajectory=trajectory,
            lengths=tuple(dice.randint(*self.tokens) for _ in range(calls + 1)),
            pauses=tuple(dice.uniform(*self.call_s) for _ in range(calls)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """lengths: tokens of each action. pauses: seconds of each call."""

    trajectory: str
    lengths: tuple[int, ...]
    pauses: tuple[float, ...]

    @property
    def calls(self) -> int:
        return len(self.pauses)

    @property
    def tokens(self) -> int:
        """That the policy writes."""
        return sum(self.lengths)

    def length_before(self, turn: int) -> int:
        """Tokens ahead of the action of `turn`; an observation has two brackets."""
        return PROMPT_TOKENS + sum(self.lengths[:turn]) + turn * (ANSWER_TOKENS + 2)

    def action(self, turn: int, before: Sequence[int]) -> list[int]:
        """The ids that the policy writes after the ids `before`."""
        checksum = crc32(array("i", before).tobytes(), crc32(self.trajectory.encode()))
        last = turn == self.calls
        ending = [*ids_of(LAST_WORDS), END_ID] if last else [STOP_ID]
        milliseconds = 0 if last else round(1000 * self.pauses[turn])
        first = ids_of(f"{turn}.{milliseconds}/")
        free = self.lengths[turn] - len(first) - len(ending)
        letters = (97 + byte % 26 for byte in Random(checksum).randbytes(free))
        return [*first, *(letter - 33 for letter in letters), *ending]

    def ids(self, question: int) -> list[tuple[bool, list[int]]]:
        """(did the policy write them, ids), in the order of the record; call n finds n - 1 calls
        before it in its session."""
        before = ids_of(prompt_of(question))
        runs = [(False, list(before))]
        for turn in range(self.calls + 1):
            action = self.action(turn, before)
            runs.append((True, action))
            before += action
            if turn < self.calls:
                answer = ids_of(f"[{answer_to(text_of(action), turn + 1)}]")
                runs.append((False, answer))
                before += answer
        return runs


def prompt_of(number: int) -> str:
    return f"#{number}:".ljust(PROMPT_TOKENS, "p")


def answer_to(action: str, calls: int) -> str:
    """What the tool answers to an action when it is the session's call number `calls`."""
    return f"{calls}.{crc32(action.encode()):08x}.".ljust(ANSWER_TOKENS, "o")


def questions(_seed: int) -> Iterator[Task]:
    """The recipe's task source: question i is what group i is asked."""
    return (Task(id=str(number), prompt=prompt_of(number)) for number in count())


def reward(trajectory: Trajectory) -> float:
    """The recipe's reward; differs between trajectories."""
    return reward_of([i for sequence in trajectory.sequences for i in sequence.token_ids])


def reward_of(ids: Sequence[int]) -> float:
    """Of all ids of a trajectory."""
    return crc32(array("i", ids).tobytes()) % 1000 / 1000
