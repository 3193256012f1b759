"""The rows of an evaluation on disk, each once, one in memory at a time.

Invariants
- `engine.serving.evaluation.results` decides which line of a row counts.
- A line of the evaluation that is not a row ends the reading with an error.
- Nothing here writes, so a running evaluation may be read.
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
from engine.offline.evaluate.folder import EvaluationSettings, SuiteSize
from engine.serving.evaluation.results import RowStates, earlier_rows, rows_file
from engine.serving.evaluation.tally import BAD, ERRORED, RowState
from engine.serving.json_lines import JsonLines
from toolwright.reward_figures import RATES, SHARES

REWARD = "reward"
MOST_NAMED = 100
"""Most rows without a score that are kept by name; all of them are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """A row with a score."""

    question: int
    """Number of its question in the suite."""
    position: int
    """Position of its question in the suite's source."""
    task_id: str
    data_source: str
    parts: Mapping[str, float]
    """Parts of the reward, the reward itself included."""
    rates: Mapping[str, tuple[float, float]]
    shares: frozenset[str]
    """Names of the rates that are shares."""
    """(numerator, denominator) by name."""
    stop_reason: str
    calls: int
    input_tokens: int
    """Tokens of the prompts of all actions."""
    output_tokens: int
    """Tokens that the policy wrote."""
    seconds: float
    """Wall-clock time."""
    masked: bool
    sampled: Mapping[str, int]
    """Actions of a model behind an API, by remark."""


@dataclass(slots=True)
class UnscoredRows:
    """Rows of a suite without a score."""

    errored: int = 0
    bad: int = 0
    open: int = 0
    named: list[tuple[int, str, str]] = field(default_factory=list)
    """(index, task id, reason) of the first ones."""


class SuiteRows:
    """The rows of one suite. `walk` them once; `unscored` is set by that."""

    def __init__(self, folder: Path, settings: EvaluationSettings, suite: SuiteSize) -> None:
        self._file = rows_file(folder, suite.name, settings.version)
        self._digest = settings.digest
        self._suite = suite
        self._samples = settings.samples
        self.unscored = UnscoredRows()

    def walk(self) -> Iterator[MeasuredRow]:
        """The measured rows, in the order in which they finished.

        Raises StartupError for a line that is not a row.
        """
        states = RowStates(self._suite.n)
        named: dict[int, tuple[str, str]] = {}
        for line in earlier_rows(JsonLines(self._file), self._digest, self._suite.n):
            index = line["index"]
            if not states.enter(line, index):
                continue
            if reason := line.get(BAD) or line.get(ERRORED):
                if index in named or len(named) < MOST_NAMED:
                    named[index] = (str(line.get("task_id", "")), str(reason))
                continue
            named.pop(index, None)
            yield self._read(line)
        self.unscored = UnscoredRows(
            errored=states.count(RowState.ERRORED),
            bad=states.count(RowState.BAD),
            open=states.count(RowState.OPEN),
            named=[(index, *reason) for index, reason in sorted(named.items())],
        )

    def _read(self, line: Mapping[str, Any]) -> MeasuredRow:
        try:
            parts = {str(name): float(value) for name, value in line["parts"].items()}
            parts = {REWARD: float(line["reward"]), **_without_reward(parts)}
            question = int(line["index"]) // self._samples
            row = MeasuredRow(
                question=question,
                position=int(line.get("position", question)),
                task_id=str(line["task_id"]),
                data_source=str(line.get("data_source", "")),
                parts=parts,
                rates={
                    str(name): (float(part), float(whole))
                    for name, (part, whole) in line.get(RATES, {}).items()
                },
                shares=frozenset(map(str, line.get(SHARES, ()))),
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
            raise self._refused(line, "it holds a number that is not finite")
        return row

    def _refused(self, line: Mapping[str, Any], why: str) -> StartupError:
        return StartupError(
            f"{self._file}: the line of row {line.get('index')} is not what `engine eval` wrote "
            f"({why}): delete the line, then run the same command, which runs the row again"
        )


def _without_reward(parts: Mapping[str, float]) -> dict[str, float]:
    """Renames a part that has the name of the whole reward."""
    return {(f"{name} (part)" if name == REWARD else name): v for name, v in parts.items()}
