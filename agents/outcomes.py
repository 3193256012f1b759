"""How a trajectory ends: from an agent's exit code and its result file. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.reading.json_text.json_bounds import OutOfBounds, check_values

MOST_RESULT = 1 << 20
"""Bytes of a result file."""


class ResultFault(ValueError):
    """A result file that cannot be read. The message names the key or the bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What an agent left in its result file."""

    answer: str | None = None
    reward: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    """Parts of the reward, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an agent ended. outcome: a value of pb.Outcome. needs_calls: see EndedRequest."""

    outcome: int
    error: str = ""
    needs_calls: bool = True


def ending_of(code: int, retry_exits: Collection[int], last_line: str = "") -> Ending:
    """The ending of an agent that exited. code: 128 + N for signal N. last_line: of its output."""
    said = f": {last_line}" if last_line else ""
    if code in retry_exits:
        return lost(f"exit code {code}, which task.agent.retry_exits has{said}")
    if code == 0:
        return Ending(outcome=pb.OUTCOME_DONE)
    word = f"signal {code - 128}" if code > 128 else f"exit code {code}"
    return failed(f"{word}{said}")


def failed(error: str) -> Ending:
    """The ending of an agent that failed for a reason of its own."""
    return Ending(outcome=pb.OUTCOME_FAILED, error=error)


def lost(error: str) -> Ending:
    """The ending of an agent that infrastructure ended."""
    return Ending(outcome=pb.OUTCOME_INFRASTRUCTURE, error=error)


STOPPED = Ending(
    outcome=pb.OUTCOME_INFRASTRUCTURE, error="the agent host stopped", needs_calls=False
)


def with_result(ending: Ending, data: bytes) -> tuple[Ending, Result]:
    """The ending of an agent, and the result that it left. A result that cannot be read makes an
    agent fail that was done."""
    try:
        return ending, read_result(data)
    except ResultFault as fault:
        if ending.outcome == pb.OUTCOME_DONE:
            ending = failed(str(fault))
        return ending, Result()


def read_result(data: bytes) -> Result:
    """The content of a result file. Raises ResultFault."""
    if len(data) > MOST_RESULT:
        raise ResultFault(f"the result file has more than {MOST_RESULT} bytes")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ResultFault(f"the result file is not JSON: {error}") from error
    try:
        check_values(found)
    except OutOfBounds as error:
        raise ResultFault(f"the result file: {error}") from error
    if not isinstance(found, dict):
        raise ResultFault("the result file is not a JSON object")
    if unknown := sorted(found.keys() - {"answer", "reward", "parts"}):
        raise ResultFault(f"{unknown[0]!r}: a result has answer, reward and parts")
    answer, parts = found.get("answer"), found.get("parts") or {}
    if not (answer is None or isinstance(answer, str)):
        raise ResultFault("answer: not a text")
    if not isinstance(parts, dict):
        raise ResultFault("parts: not an object of numbers")
    return Result(
        answer=answer,
        reward=None if found.get("reward") is None else _number("reward", found["reward"]),
        parts={name: _number(f"parts.{name}", value) for name, value in parts.items()},
    )


def _number(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ResultFault(f"{key}: not a number")
    return float(value)
