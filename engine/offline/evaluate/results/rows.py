"""The rows of an evaluation as they lie on disk, each once, one in memory at a time.

Invariants
- Of a row that was measured twice the first line counts; an errored line counts for nothing once
  the row is measured.
- A line of other settings, or of no row that was asked for, is passed over; a line that is no row's
  ends the reading with a sentence.
- Nothing here writes: an evaluation that goes on may be read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from engine.core.rollout.loop import SAMPLED
from engine.errors import StartupError
from engine.offline.evaluate.folder import AskedOf, Begun
from engine.serving.evaluation.rates import RATES
from engine.serving.evaluation.results import earlier_rows, rows_file
from engine.serving.evaluation.tally import BAD, ERRORED
from engine.serving.json_lines import Lines

REWARD = "reward"
MOST_NAMED = 100
"""Rows without a score that are kept by name; all of them are counted."""
_OPEN, _MEASURED, _BAD, _ERRORED = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A measured row. question: its number in the suite. position: in the suite's source. parts: of
    the reward, which is one of them. rates: (numerator, denominator) by name. input_tokens,
    output_tokens: see the docs' page. seconds: wall clock.
    sampled: actions of a model behind an API, by remark.
    """

    question: int
    position: int
    task_id: str
    data_source: str
    parts: Mapping[str, float]
    rates: Mapping[str, tuple[float, float]]
    stop_reason: str
    calls: int
    input_tokens: int
    output_tokens: int
    seconds: float
    masked: bool
    sampled: Mapping[str, int]


@dataclass(slots=True)
class Without:
    """Rows of a suite that have no score. named: (index, task id, reason), the first of them."""

    errored: int = 0
    bad: int = 0
    open: int = 0
    named: list[tuple[int, str, str]] = field(default_factory=list)


class SuiteRows:
    """The rows of one suite. Walk them once; then `without` says what is missing."""

    def __init__(self, folder: Path, begun: Begun, suite: AskedOf) -> None:
        self._file = rows_file(folder, suite.name, begun.version)
        self._digest = begun.digest
        self._suite = suite
        self._each = max(1, suite.n // max(1, suite.questions))
        self.without = Without()

    def walk(self) -> Iterator[Row]:
        """The measured ones, in the order in which they were done. StartupError for a line that is
        no row."""
        states = bytearray(self._suite.n)
        named: dict[int, tuple[str, str]] = {}
        for line in earlier_rows(Lines(self._file), self._digest, self._suite.n):
            index = line["index"]
            if states[index] in (_MEASURED, _BAD):
                continue
            if reason := line.get(BAD) or line.get(ERRORED):
                states[index] = _BAD if line.get(BAD) else _ERRORED
                if index in named or len(named) < MOST_NAMED:
                    named[index] = (str(line.get("task_id", "")), str(reason))
                continue
            states[index] = _MEASURED
            named.pop(index, None)
            yield self._read(line)
        self.without = Without(
            errored=states.count(_ERRORED),
            bad=states.count(_BAD),
            open=states.count(_OPEN),
            named=[(index, *said) for index, said in sorted(named.items())],
        )

    def _read(self, line: Mapping[str, Any]) -> Row:
        try:
            parts = {str(name): float(value) for name, value in line["parts"].items()}
            parts = {REWARD: float(line["reward"]), **_without_reward(parts)}
            question = int(line["index"]) // self._each
            row = Row(
                question=question,
                position=int(line.get("position", question)),
                task_id=str(line["task_id"]),
                data_source=str(line.get("data_source", "")),
                parts=parts,
                rates={
                    str(name): (float(part), float(whole))
                    for name, (part, whole) in line.get(RATES, {}).items()
                },
                stop_reason=str(line["stop_reason"]),
                calls=int(line["calls"]),
                input_tokens=int(line.get("input_tokens", 0)),
                output_tokens=int(line.get("output_tokens", line["response_tokens"])),
                seconds=float(line.get("seconds", 0.0)),
                masked=bool(line["masked"]),
                sampled={str(name): int(n) for name, n in line.get(SAMPLED, {}).items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise self._refused(line, repr(error)) from error
        numbers = (*parts.values(), *chain.from_iterable(row.rates.values()), row.seconds)
        if not all(map(math.isfinite, numbers)):
            raise self._refused(line, "a number of it is not finite")
        return row

    def _refused(self, line: Mapping[str, Any], why: str) -> StartupError:
        return StartupError(
            f"{self._file}: the line of row {line.get('index')} is not what `engine eval` wrote "
            f"({why}): take it out, and the same command measures the row again"
        )


def _without_reward(parts: Mapping[str, float]) -> dict[str, float]:
    """A part that is named like the whole reward would hide it."""
    return {(f"{name} (part)" if name == REWARD else name): v for name, v in parts.items()}
