"""One trajectory as data for its page: the author of each token, its calls, its rewards.

Texts are what was recorded, letter by letter: the page shows them, and nothing here makes them
harmless. Long ones are cut unless everything is asked for; what is cut says how long it was.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from console.record.files import sample as sample_of
from console.record.lines import json_object
from console.web.index.entries import status_word, stop_word
from console.web.index.labels import shown_value
from console.web.index.sources import (
    JOURNAL,
    ROWS_FOLDER,
    STRANGE,
    open_journal,
    read_message,
)
from console.web.telling.group_credit import group_credit
from console.web.telling.sequences import Branch, branches
from console.web.telling.tokens import Spelling, Spellings
from toolwright.common.v1 import trajectory_pb2 as pb
from toolwright.reading.files import open_regular
from toolwright.reading.sqlite_files import typed_rows
from toolwright.tracing.ids import trace_id
from toolwright.types import Author, CallRecord, Segment, Trajectory
from toolwright.wire import trajectory_from_proto

LONGEST = 20_000
"""Characters of a text."""
MOST_PIECES = 6_000
"""Tokens of a segment that are shown one by one; the others are text."""
LONGEST_LINE = 64 << 20
FATES = {0: "offered", 1: "dropped: too old", 2: "discarded: no signal"}


class Gone(Exception):
    """The record is no longer there, or cannot be read; the message says why."""


def tell(
    folder: Path, row: Mapping[str, Any], spellings: Spellings, *, whole: bool
) -> dict[str, Any]:
    """row: as `queries.find` gives it. Its record is in "record", or the reason why it is missing
    in "gone"; of a journaled one what the learner makes of its rewards is in "credit"."""
    shown = {key: value for key, value in row.items() if key not in ("at", "part", "sample")}
    try:
        if row["source"] == JOURNAL:
            found, fate, owner = _of_journal(folder / JOURNAL, row["at"], row["part"])
            return shown | {
                "fate": FATES.get(fate, ""),
                "trace": trace_id(owner, found.id),
                "credit": group_credit(folder, row["at"], row["part"], trained=not fate),
                "record": of_record(found, spellings, whole=whole),
            }
        if row["kind"] == "file":
            found = _of_file(folder / row["source"], row["at"])
            return shown | {"record": of_record(found, spellings, whole=whole)}
        return shown | {"record": _of_suite(folder, row, whole=whole)}
    except (Gone, OSError) as error:
        return shown | {"gone": str(error)}


def of_record(
    trajectory: Trajectory, spellings: Spellings, *, whole: bool = False
) -> dict[str, Any]:
    """A recorded trajectory. A sequence that is a fork of another one has the segments after the
    `fork_offset` tokens that it shares with its parent."""
    spelling = spellings.of(trajectory.tokenizer_hash)
    cut = _Cut(whole)
    source = trajectory.task.data_source
    return {
        "task": {
            "id": trajectory.task.id,
            "data_source": source if whole else shown_value(source),
            "answers": [cut(answer) for answer in trajectory.task.answers],
            # A stranger's, of any size, and no page shows it.
            **({"metadata": dict(trajectory.task.metadata)} if whole else {}),
        },
        "attempt": trajectory.attempt,
        "index": trajectory.index,
        "status": status_word(trajectory.status),
        "stop": stop_word(trajectory.stop_reason),
        "reward": trajectory.reward,
        "parts": [
            {"name": part.name, "value": part.value, "turn": part.turn}
            for part in trajectory.reward_parts
        ],
        "masked": trajectory.masked,
        "outside_baseline": trajectory.outside_baseline,
        "anchors": {str(turn): list(names) for turn, names in trajectory.anchors.items()},
        "seconds": {
            "open": trajectory.timings.open_s,
            "generate": trajectory.timings.generate_s,
            "tool": trajectory.timings.tool_s,
            "reward": trajectory.timings.reward_s,
            "wall": trajectory.timings.wall_s,
        },
        "decoded": spelling is not None,
        "sequences": [
            {
                "id": sequence.id,
                "parent": sequence.parent,
                "fork_offset": sequence.fork_offset,
                "agent": sequence.agent,
                "weight": sequence.weight,
                "branch": _branch(branch),
                "segments": [_segment(one, spelling, cut) for one in branch.own],
            }
            for sequence, branch in zip(trajectory.sequences, branches(trajectory), strict=True)
        ],
        "calls": [_call(call, cut) for call in trajectory.calls],
        "events": [
            {"kind": event.kind, "turn": event.turn, "data": dict(event.data)}
            for event in trajectory.events
        ],
    }


def _branch(branch: Branch) -> dict[str, Any]:
    """A sequence's place in the tree; a span is [author, turn, start, end, trained]."""
    return {
        "parent": branch.parent,
        "shared": branch.shared,
        "turn": branch.turn,
        "why": branch.why,
        "row": branch.row,
        "written": branch.written,
        "trained": branch.trained,
        "untrained": branch.untrained,
        "spans": [[one.author, one.turn, one.start, one.end, one.trained] for one in branch.spans],
    }


class _Cut:
    """A text as the page gets it: itself, or its beginning with its whole length."""

    def __init__(self, whole: bool) -> None:
        self.whole = whole

    def __call__(self, text: str) -> dict[str, Any]:
        if self.whole or len(text) <= LONGEST:
            return {"text": text}
        return {"text": text[:LONGEST], "length": len(text)}


def _segment(segment: Segment, spelling: Spelling | None, cut: _Cut) -> dict[str, Any]:
    told: dict[str, Any] = {
        "author": segment.author.name.lower(),
        "turn": segment.turn,
        "tokens": len(segment.token_ids),
        "trainable": segment.trainable,
        "version": str(segment.weight_version) if segment.weight_version else None,
        "media": [
            {"sha256": ref.blob.sha256, "kind": ref.blob.media_type, "size": ref.blob.size}
            for ref in segment.media
        ],
    }
    if segment.sampling is not None:
        told["temperature"] = segment.sampling.temperature
    if segment.finish is not None:
        told["finish"] = segment.finish.kind.name.lower()
        told["matched"] = segment.finish.matched_text or segment.finish.matched_token
    if spelling is None:
        return told | {"ids": list(segment.token_ids[: None if cut.whole else MOST_PIECES])}
    if segment.media:
        return told | {"runs": [cut(text) for text in _around_images(segment, spelling)]}
    if segment.author is not Author.MODEL or len(segment.token_ids) > MOST_PIECES:
        return told | cut(spelling.text(segment.token_ids))
    logprobs = segment.logprobs
    return told | {
        "ids": list(segment.token_ids),
        "pieces": spelling.pieces(segment.token_ids),
        "logprobs": None if logprobs is None else [round(value, 5) for value in logprobs],
    }


def _around_images(segment: Segment, spelling: Spelling) -> Iterator[str]:
    """Texts before, between and after the segment's images, without the tokens that stand for
    these: one more than there are images."""
    place = 0
    for ref in segment.media:
        yield spelling.text(segment.token_ids[place : ref.token_offset])
        place = ref.token_offset + ref.placeholder_tokens
    yield spelling.text(segment.token_ids[place:])


def _call(call: CallRecord, cut: _Cut) -> dict[str, Any]:
    outcome, stamps = call.outcome, call.timings
    answered = stamps.result_ns - stamps.dispatched_ns
    dispatched = stamps.dispatched_ns - stamps.stop_read_ns
    return {
        "id": call.call_id,
        "turn": call.turn,
        "index": call.index,
        "tool": call.tool,
        "action": cut(call.action),
        "observation": cut(outcome.observation),
        "author": outcome.author.name.lower(),
        "valid": outcome.valid,
        "invalid_reason": outcome.invalid_reason,
        "error": outcome.error.name.lower() if outcome.error else "",
        "done": outcome.done,
        "session_lost": outcome.session_lost,
        "truncated": outcome.truncated,
        "isolation": outcome.isolation,
        "reward": outcome.reward,
        "metrics": dict(outcome.metrics),
        "seconds": {
            "dispatched": dispatched / 1e9 if stamps.stop_read_ns and dispatched >= 0 else None,
            "queued": outcome.queued_s,
            "run": outcome.run_s,
            "answered": answered / 1e9 if stamps.dispatched_ns and answered >= 0 else None,
        },
    }


def _of_journal(file: Path, sequence: int, number: int) -> tuple[Trajectory, int, str]:
    """(the record, the fate of its group, the run's owner, of whom traces have their ids)."""
    try:
        with open_journal(file) as db:
            found_rows = db.execute(
                "SELECT trajectory, dropped, (SELECT value FROM facts WHERE name = 'owner')"
                " FROM members JOIN groups USING (sequence)"
                " WHERE sequence = ? AND number = ?",
                (sequence, number),
            )
            row = next(typed_rows(found_rows, bytes, int, str | None), None)
    except sqlite3.Error as error:
        raise Gone(f"{file} cannot be read: {error}") from error
    if row is None:
        raise Gone(
            "the learner has used this group and the journal has forgotten it: "
            'engine.history = "all" keeps everything'
        )
    try:
        found = trajectory_from_proto(pb.Trajectory.FromString(row[0]))
    except (DecodeError, *STRANGE) as error:
        raise Gone(f"the record cannot be read: {error}") from error
    return found, row[1], row[2] or ""


def _of_file(file: Path, at: int) -> Trajectory:
    try:
        with open_regular(file) as opened:
            opened.seek(at)
            message = read_message(opened)
        if message is not None:
            return trajectory_from_proto(message)
    except ValueError as error:
        raise Gone(f"{file} is not what it was: {error}") from error
    raise Gone(f"{file} is shorter than it was")


def _of_suite(folder: Path, row: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
    """Figures of an evaluated question, and its text where that was kept."""
    told: dict[str, Any] = {"sequences": [], "calls": [], "events": [], "decoded": True}
    if row["source"].startswith(f"{ROWS_FOLDER}/"):
        figures = _object(folder / row["source"], row["at"])
        parts = figures.get("parts")
        told |= {
            "parts": [
                {"name": name, "value": value, "turn": None}
                for name, value in (parts.items() if isinstance(parts, dict) else ())
            ],
            "figures": figures,
        }
    if row["sample"] is not None:
        sample = sample_of(_object(folder / "samples.jsonl", row["sample"]))
        if sample is None:
            raise Gone("samples.jsonl is not what it was")
        told["task"] = {"answers": [_Cut(whole)(answer) for answer in sample.answers]}
        told["seconds"] = {
            name.removesuffix("_s"): seconds for name, seconds in sample.timings.items()
        }
        told["sequences"] = [{"segments": _of_sample(sample.segments, _Cut(whole))}]
    return told


def _of_sample(segments: Sequence[tuple[str, str]], cut: _Cut) -> list[dict[str, Any]]:
    """Texts with their authors: a sample has no more. A turn ends where the policy has read."""
    told: list[dict[str, Any]] = []
    turn, wrote = 0, False
    for author, text in segments:
        if author == "model" and told and told[-1]["author"] != "model" and wrote:
            turn += 1
        wrote = wrote or author == "model"
        told.append({"author": author, "turn": turn, **cut(text)})
    return told


def _object(file: Path, at: int) -> dict[str, Any]:
    with open_regular(file) as opened:
        opened.seek(at)
        found = json_object(opened.readline(LONGEST_LINE))
    if found is None:
        raise Gone(f"{file} is not what it was: there is no line at byte {at}")
    return found
