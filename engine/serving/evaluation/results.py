"""The files of an evaluation, and their reading by a later life.

evaluations.jsonl has one line per suite and version, and samples.jsonl a few trajectories as text.
evaluations/SUITE@VERSION.jsonl has one line per row, written as soon as the row is done.

Invariants
- A row's line names its settings (`settings`); lines of other settings do not count.
- Of several lines of one row the first one that is measured or bad counts. An errored line counts
  while there is no other.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from engine.core.rollout.loop import SAMPLED
from engine.core.rollout.view import segment_text
from engine.serving.evaluation.rates import rates_of, shares_of
from engine.serving.evaluation.tally import BAD, ERRORED, RowState, state_of
from engine.serving.json_lines import JsonLines
from engine.types import Codec
from toolwright.reward_figures import RATES, SHARES
from toolwright.types import Trajectory, WeightVersion

COUNTED = ("stop_put_back", "end_dropped")
"""Remarks about an API's actions that a row counts."""
UNMEASURED = ("stream_options",)
"""Keys that do not change the text of a request's answer."""
REPORTED = ("prompt_tokens", "completion_tokens")
"""Token counts of an action that an API reports."""
LONGEST_NAME = 200
"""Bytes of a file's name before its ending; in a longer name the version is hashed."""
MOST_TEXT = 32_000
"""Characters of a trajectory that its row keeps."""
MOST_REASON = 500
"""Characters of an error in a row."""


class Results:
    """The evaluation files of one run folder."""

    def __init__(self, run_folder: Path) -> None:
        self.summaries = JsonLines(run_folder / "evaluations.jsonl")
        self.samples = JsonLines(run_folder / "samples.jsonl")
        self._run_folder = run_folder
        self._open: dict[str, JsonLines] = {}

    @property
    def full(self) -> bool:
        """Whether the disk is full: an evaluation waits with its results."""
        return any(file.full for file in (self.summaries, self.samples, *self._open.values()))

    def begin(self) -> set[tuple[str, str, int]]:
        """Removes lines that a kill cut. Returns (suite, lineage, step) of every finished
        evaluation."""
        for file in (self.summaries, self.samples):
            file.cut_partial_line()
        return {
            (row["suite"], row["lineage"], row["step"])
            for row in self.summaries.read()
            if {"suite", "lineage", "step"} <= row.keys()
        }

    def rows(self, suite: str, version: WeightVersion) -> JsonLines:
        """The lines of one evaluation, without a cut one; `close` them when it is over."""
        file = JsonLines(rows_file(self._run_folder, suite, str(version)))
        file.cut_partial_line()
        self._open[file.file.name] = file
        return file

    def close(self, rows: JsonLines) -> None:
        self._open.pop(rows.file.name, None)


def rows_file(run_folder: Path, suite: str, version: str) -> Path:
    """The file with the lines of one evaluation."""
    name = f"{suite}@{quote(version, safe='')}"
    if len(name.encode()) > LONGEST_NAME:  # a file system takes 255 bytes
        name = f"{suite}@{hashlib.sha256(version.encode()).hexdigest()[:32]}"
    return run_folder / "evaluations" / f"{name}.jsonl"


def earlier_rows(rows: JsonLines, settings: str, n: int) -> Iterator[dict[str, Any]]:
    """Lines that an earlier life wrote with the same settings, in order."""
    for row in rows.read():
        index = row.get("index")
        if row.get("settings") == settings and isinstance(index, int) and 0 <= index < n:
            yield row


class RowStates:
    """The states of a suite's rows, and which of several lines of a row counts.

    The first measured or bad line counts. An errored line counts until such a line follows.
    """

    def __init__(self, n: int) -> None:
        self._states = bytearray(n)

    def __getitem__(self, index: int) -> RowState:
        return RowState(self._states[index])

    def count(self, state: RowState) -> int:
        return self._states.count(state)

    def enter(self, row: Mapping[str, Any], index: int) -> bool:
        """Takes a line in; False if an earlier line of its row counts."""
        if self._states[index] in (RowState.MEASURED, RowState.BAD):
            return False
        self._states[index] = state_of(row)
        return True

    def open_again(self, index: int) -> None:
        """For a row that is run again."""
        self._states[index] = RowState.OPEN


def row_of(
    trajectory: Trajectory,
    suite: str,
    version: WeightVersion,
    settings: str,
    codec: Codec,
    errored: str = "",
) -> dict[str, object]:
    """A trajectory's line, with its texts. errored: why it has no reward that counts."""
    return {
        "suite": suite,
        "version": str(version),
        "index": trajectory.index,
        "task_id": trajectory.task.id,
        "data_source": trajectory.task.data_source,
        "reward": trajectory.reward,
        "parts": {part.name: part.value for part in trajectory.reward_parts if part.turn is None},
        **({RATES: rates} if (rates := rates_of(trajectory.events)) else {}),
        **({SHARES: shares} if (shares := shares_of(trajectory.events)) else {}),
        "stop_reason": trajectory.stop_reason.name.lower(),
        "calls": len(trajectory.calls),
        "response_tokens": trajectory.response_tokens,
        **tokens_of(trajectory),
        **({SAMPLED: remarks} if (remarks := remarks_of(trajectory)) else {}),
        "seconds": round(trajectory.timings.wall_s, 3),
        "masked": trajectory.masked,
        "versions": [str(one) for one in trajectory.weight_versions],
        ERRORED: errored[:MOST_REASON],
        "settings": settings,
        "answers": list(trajectory.task.answers),
        "segments": cut_texts(texts_of(trajectory, codec)),
    }


def texts_of(trajectory: Trajectory, codec: Codec) -> list[dict[str, str]]:
    """The trajectory's texts with their authors, in order."""
    return [
        {"author": segment.author.name.lower(), "text": segment_text(segment, codec)}
        for segment in trajectory.segments
    ]


def cut_texts(segments: list[dict[str, str]], most: int = MOST_TEXT) -> list[dict[str, str]]:
    """The first half of `most` characters and the last: the question and the answer stay. Between
    them stands the number of omitted characters."""
    length = sum(len(one["text"]) for one in segments)
    if length <= most:
        return segments
    head, tail = most // 2, length - (most - most // 2)
    found, start = [], 0
    for one in segments:
        end = start + len(one["text"])
        text = one["text"][: max(0, head - start)]
        if start <= head < end:
            text += f"[{tail - head} characters left out]"
        text += one["text"][max(tail - start, 0) :]
        if text:
            found.append({"author": one["author"], "text": text})
        start = end
    return found


def tokens_of(trajectory: Trajectory) -> dict[str, int]:
    """Tokens that the policy read, the prompt of every action included, and tokens that it wrote.
    They are the API's counts if every action has them, else counts of the record's own tokens."""
    spans = [
        span
        for sequence, shared in zip(trajectory.sequences, trajectory.shared_prefixes, strict=True)
        for span in sequence.action_spans
        if span[1] >= shared
    ]
    reported = [event.data for event in trajectory.events if event.kind == SAMPLED]
    if (
        reported
        and len(reported) >= len(spans)
        and all(name in one for one in reported for name in REPORTED)
    ):
        read, written = (sum(int(one[name]) for one in reported) for name in REPORTED)
        return {"input_tokens": read, "output_tokens": written}
    return {
        "input_tokens": sum(start for _turn, start, _end in spans),
        "output_tokens": trajectory.response_tokens,
    }


def remarks_of(trajectory: Trajectory) -> dict[str, int]:
    """Actions of a model behind an API by remark. `actions` counts all of them, `left_out/KEY`
    those whose request went out without the key. Empty for SGLang's weights."""
    noted = [event.data for event in trajectory.events if event.kind == SAMPLED]
    found = Counter({"actions": len(noted)} if noted else {})
    for one in noted:
        found.update(f"left_out/{key}" for key in one.get("left_out", ()) if key not in UNMEASURED)
        found.update(name for name in COUNTED if name in one)
    return dict(found)


def bad_row(
    index: int, task_id: str, reason: str, suite: str, version: WeightVersion, settings: str
) -> dict[str, object]:
    """The line of a row that cannot be rolled out."""
    return {
        "suite": suite,
        "version": str(version),
        "index": index,
        "task_id": task_id,
        BAD: reason[:MOST_REASON] or "no task",
        "settings": settings,
    }


def sample_of(
    trajectory: Trajectory, suite: str, version: WeightVersion, codec: Codec
) -> Mapping[str, object]:
    """A line of samples.jsonl: the trajectory as text."""
    return {
        "suite": suite,
        "lineage": version.lineage,
        "step": version.step,
        "index": trajectory.index,
        "task_id": trajectory.task.id,
        "answers": list(trajectory.task.answers),
        "reward": trajectory.reward,
        "stop_reason": trajectory.stop_reason.name.lower(),
        "timings": {
            "wall_s": trajectory.timings.wall_s,
            "generate_s": trajectory.timings.generate_s,
            "tool_s": trajectory.timings.tool_s,
            "open_s": trajectory.timings.open_s,
            "reward_s": trajectory.timings.reward_s,
        },
        "segments": texts_of(trajectory, codec),
        **({SAMPLED: noted} if (noted := _noted(trajectory)) else {}),
    }


def _noted(trajectory: Trajectory) -> list[dict[str, object]]:
    """The remarks of each action of a model behind an API, with the action's turn."""
    return [
        {"turn": event.turn, **event.data} for event in trajectory.events if event.kind == SAMPLED
    ]
