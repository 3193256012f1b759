"""A recorded trajectory, a line of an evaluation, a sample: each to its entry. Pure.

What is read is a stranger's: numbers are taken where they are numbers, texts are cut, and half a
surrogate pair, which no database takes, becomes a question mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, TypeVar

from console.record.files import sample as sample_of
from console.record.lines import number
from console.report.transcript import question as last_question
from console.web.index.labels import labels_of, labels_of_row, reasons_of
from console.web.index.segments import own_segments
from console.web.index.spans import times_of
from console.web.index.types import NO_STEP, Entry, Place, SuiteKind, Texts
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.common.v1 import trajectory_pb2 as pb
from toolwright.json_data import mapping

Decode = Callable[[bytes], str]
"""Text of little-endian int32 token ids; "" where the tokenizer is not at hand."""

LONGEST_NAME = 300
LONGEST_LINE = 400
"""Characters of question and answer in the table."""
LONGEST_TEXT = 32_768
"""Characters of one text that are searched: the first half and the last half of a longer one."""
MOST_TOOLS = 50
TRAINING = "training"

Message = TypeVar("Message")


def of_trajectory(
    message: pb.Trajectory, place: Place, *, kind: SuiteKind, suite: str, decode: Decode
) -> Entry:
    """The entry of a record in the journal or a file. A file's record is named after the file too,
    because names may occur in several files."""
    segments = list(own_segments(message))
    written = [segment for segment in segments if segment.author == pb.AUTHOR_MODEL]
    wrote = [decode(segment.token_ids) for segment in written]
    if not any(wrote):
        final = message.metadata.fields["final_text"].string_value
        wrote = [*(call.action for call in message.calls), final]
    versions = [s.weight_version.step for s in written if s.HasField("weight_version")]
    question = _question(message, segments, decode)
    group = message.group_id or message.id
    return Entry(
        name=_name(message.id if kind == "training" else f"{suite}/{place.at}"),
        group=_name(group if kind == "training" else f"{suite}/{group}"),
        suite=_name(suite),
        kind=kind,
        place=place,
        step=min(max(versions), 2**62) if versions else NO_STEP,
        reward=number(message.reward),
        stop=stop_word(message.stop_reason),
        status=status_word(message.status),
        masked=message.masked,
        turns=max((segment.turn + 1 for segment in written), default=0),
        calls=len(message.calls),
        failed=sum(call.error != reasons.TOOL_ERROR_KIND_UNSPECIFIED for call in message.calls),
        tokens=sum(segment.token_count for segment in written),
        seconds=number(message.timings.wall_s) or 0.0,
        task=_name(message.task.id),
        question=_line(question),
        answer=_line(wrote[-1] if wrote else ""),
        tools=tools_of(call.tool for call in message.calls),
        texts=Texts(question=_cut(question), wrote=_joined(wrote), read=_read(message, decode)),
        times=times_of(message),
        labels=(*labels_of(message.task), *reasons_of(message)),
    )


def of_row(row: Mapping[str, Any], place: Place) -> Entry | None:
    """The entry of a line of evaluations/SUITE@VERSION.jsonl; None for another line."""
    suite, version, index = row.get("suite"), row.get("version"), number(row.get("index"))
    if not isinstance(suite, str) or not isinstance(version, str) or index is None:
        return None
    bad, errored = _text(row.get("bad")), _text(row.get("errored"))
    return Entry(
        **_of_suite(suite, version, int(index)),
        place=place,
        reward=None if bad or errored else number(row.get("reward")),
        stop=_name(_text(row.get("stop_reason"))),
        status="bad row" if bad else "errored" if errored else "",
        masked=row.get("masked") is True,
        calls=_count(row, "calls"),
        tokens=_count(row, "response_tokens"),
        seconds=number(row.get("seconds")) or 0.0,
        task=_name(_text(row.get("task_id"))),
        answer=_line(bad or errored),
        labels=labels_of_row(row),
    )


def of_sample(row: Mapping[str, Any], place: Place) -> Entry | None:
    """The entry of a line of samples.jsonl; None for another line."""
    sample = sample_of(row)
    if sample is None:
        return None
    wrote = [text for author, text in sample.segments if author == "model"]
    read = [text for author, text in sample.segments if author not in ("model", "prompt")]
    asked = next((text for author, text in sample.segments if author == "prompt"), "")
    question = last_question(asked)
    return Entry(
        **_of_suite(sample.suite, f"{_text(row.get('lineage'))}.{sample.step}", sample.index),
        place=place,
        reward=sample.reward,
        stop=_name(sample.stop_reason),
        turns=len(wrote),
        seconds=sample.timings.get("wall_s", 0.0),
        task=_name(_text(row.get("task_id"))),
        question=_line(question),
        answer=_line(wrote[-1] if wrote else ""),
        texts=Texts(question=_cut(question), wrote=_joined(wrote), read=_joined(read)),
    )


def stop_word(reason: int) -> str:
    """As the files of an evaluation spell it: "max_turns"."""
    return _word(reasons.StopReason, reason, "STOP_REASON_")


def status_word(status: int) -> str:
    """As `stop_word`: "completed"."""
    return _word(pb.TrajectoryStatus, status, "TRAJECTORY_STATUS_")


def tools_of(names: Iterable[str]) -> tuple[str, ...]:
    """Each once, in the order of their first call, without line ends."""
    return tuple(islice(dict.fromkeys(map(_line, filter(None, names))), MOST_TOOLS))


def message_text(content: object) -> str:
    """Text of a chat message's content: a text, or a list with parts that are texts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return " ".join(_text(part.get("text")) for part in parts if isinstance(part, dict)).strip()


def _of_suite(suite: str, version: str, index: int) -> dict[str, Any]:
    """A question's rollouts under all versions are one group: they are compared with each other."""
    step = version.rpartition(".")[2]
    return {
        "name": _name(f"{suite}@{version}/{index}"),
        "group": _name(f"{suite}/{index}"),
        "suite": _name(suite),
        "kind": "evaluation",
        "step": int(step) if step.isdecimal() and len(step) < 19 else NO_STEP,
    }


def _question(message: pb.Trajectory, segments: Sequence[pb.Segment], decode: Decode) -> str:
    """What the user said last; of a task without words the prompt's end."""
    if message.task.prompt:
        return last_question(message.task.prompt)
    if len(message.task.messages):
        asked = messages_of(message.task)
        users = [one for one in asked if one.get("role") == "user"] or asked
        return message_text(users[-1].get("content"))
    first = next((one for one in segments if one.author == pb.AUTHOR_PROMPT), None)
    return last_question(decode(first.token_ids)) if first is not None else ""


def messages_of(task: pb.Task) -> list[dict[str, Any]]:
    """The task's chat messages, those that are objects."""
    rows = task.messages.values
    return [mapping(row.struct_value) for row in rows if row.HasField("struct_value")]


def _read(message: pb.Trajectory, decode: Decode) -> str:
    if message.calls:
        return _joined([call.observation for call in message.calls])
    strangers = (pb.AUTHOR_TOOL, pb.AUTHOR_MEMORY, pb.AUTHOR_SYSTEM)
    return _joined(
        [
            decode(segment.token_ids)
            for segment in own_segments(message)
            if segment.author in strangers
        ]
    )


def _joined(texts: Sequence[str]) -> str:
    return _cut("\n".join(texts))


def _cut(text: str) -> str:
    half = LONGEST_TEXT // 2
    return _sound(text if len(text) <= LONGEST_TEXT else f"{text[:half]}\n{text[-half:]}")


def _line(text: str) -> str:
    """One line of the table."""
    return _sound(" ".join(text[: 4 * LONGEST_LINE].split())[:LONGEST_LINE])


def _name(text: str) -> str:
    return _sound(text[:LONGEST_NAME])


def _sound(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(row: Mapping[str, Any], name: str) -> int:
    found = number(row.get(name))
    return int(found) if found is not None and 0 <= found < 2**62 else 0


@cache
def _word(enum: Any, value: int, prefix: str) -> str:
    if value not in enum.values():
        return str(value)  # of a newer contract
    name: str = enum.Name(value).removeprefix(prefix).lower()
    return "" if name == "unspecified" else name
