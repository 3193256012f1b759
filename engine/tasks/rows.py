"""One row of a file as a task; pure.

Rows hold `prompt` or `messages` (or `question`), `answer` (text or list), and what else they
like: `id`, `data_source`, and `metadata` (an object); other columns join the metadata. verl's
Parquet files fit as they are: messages under `prompt`, the answer in `reward_model.ground_truth`.
Answers never join the metadata, which tools get to see.

`images` (or `image`) are media: paths relative to the file, bytes, or Hugging Face's {"bytes",
"path"}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.images.media import Source
from toolwright.types import Task
from toolwright.wire import task_to_proto

MEDIA_COLUMNS = ("images", "image")
OWN_COLUMNS = frozenset(
    (
        "id", "prompt", "messages", "question", "answer", "answers", "data_source", "metadata",
        "reward_model", *MEDIA_COLUMNS,
    )
)  # fmt: skip


class RowRefused(ValueError):
    """The row is no task. kind: one word for the summary of a run."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def read_json(line: bytes) -> Any:
    """What a line of JSONL holds. RowRefused where that is no JSON in UTF-8."""
    try:
        return json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise RowRefused("not_utf8", f"not UTF-8: {error}") from error
    except (ValueError, RecursionError) as error:
        raise RowRefused("not_json", f"not JSON: {error}") from error


def read_task(row: object, *, name: str, data_source: str) -> Task:
    """The row's task, without its media. RowRefused says what does not fit; whether the values
    inside can be written is `check_task`'s question.

    name, data_source: for a row that says neither.
    """
    if not isinstance(row, dict):
        raise RowRefused(
            "not_an_object", f"a row is one JSON object a line, not {type(row).__name__}"
        )
    messages = row.get("messages")
    prompt = row.get("prompt") or row.get("question") or ""
    if isinstance(prompt, list):
        messages, prompt = prompt, ""
    if not messages and not prompt:
        raise RowRefused("no_question", "neither prompt, question nor messages")
    if not isinstance(prompt, str | int | float):
        raise RowRefused("no_question", f"the prompt is {type(prompt).__name__}, not text")
    if messages and not (
        isinstance(messages, list) and all(isinstance(message, dict) for message in messages)
    ):
        raise RowRefused("messages", 'messages are a list of objects with "role" and "content"')
    rest = {k: v for k, v in row.items() if k not in OWN_COLUMNS and _is_plain(v)}
    return Task(
        id=_text(row.get("id"), name),
        data_source=_text(row.get("data_source"), data_source),
        prompt=str(prompt),
        messages=tuple(messages or ()),
        answers=_answers(row),
        metadata={**rest, **_metadata(row)},
    )


def check_task(task: object) -> None:
    """RowRefused unless it is a task that journal and tool services can be given."""
    if not isinstance(task, Task):
        raise RowRefused("not_a_task", f"{type(task).__name__}, not toolwright.types.Task")
    try:
        task_to_proto(task).SerializeToString()
    except (AttributeError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise RowRefused(
            "not_json_like",
            f"its messages, answers or metadata hold what is no JSON: {error}"[:500],
        ) from error


def read_media_sources(row: Mapping[str, Any], folder: Path) -> tuple[Source, ...]:
    """Where the row's media are: files below `folder`, or their bytes. RowRefused for a column
    that holds anything else."""
    given = next((row[name] for name in MEDIA_COLUMNS if row.get(name) is not None), None)
    if given is None:
        return ()
    found: list[Source] = []
    for one in given if isinstance(given, list) else [given]:
        inside = (one.get("bytes") or one.get("path")) if isinstance(one, dict) else one
        if isinstance(inside, str) and inside and "\0" not in inside:
            found.append(folder / inside)
        elif isinstance(inside, bytes) and inside:
            found.append(inside)
        else:
            raise RowRefused(
                "images",
                f'an image is a path, bytes or {{"bytes", "path"}}, not {type(inside).__name__}',
            )
    return tuple(found)


def _text(value: object, otherwise: str) -> str:
    return otherwise if value is None else str(value)


def _answers(row: Mapping[str, Any]) -> tuple[str, ...]:
    answers = row.get("answers", row.get("answer"))
    if answers is None and isinstance(row.get("reward_model"), dict):
        answers = row["reward_model"].get("ground_truth")
    if answers is None:
        return ()
    if not isinstance(answers, list):
        answers = [answers]
    return tuple(str(answer) for answer in answers)


def _metadata(row: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = row.get("metadata") or {}
    if isinstance(metadata, str):
        try:
            metadata = json.loads(metadata)
        except (ValueError, RecursionError) as error:
            raise RowRefused("metadata", f"metadata is not JSON: {error}") from error
    if not isinstance(metadata, dict):
        raise RowRefused("metadata", f"metadata is an object, not {type(metadata).__name__}")
    return metadata


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool | list | dict) or value is None
