"""One row of a task source as a task; pure.

Rows hold `prompt` or `messages` (or `question`) and `answer` (text or list). `id`, `data_source`
and `metadata` (an object) are optional; other columns join the metadata. verl's Parquet files fit
unchanged: messages under `prompt`, the answer in `reward_model.ground_truth`. Answers never join
the metadata, which tools see. `toolwright.reading.task_rows.rows` reads the values.

`images` (or `image`) and `videos` (or `video`) are media: paths relative to the file, bytes, or
Hugging Face's {"bytes", "path"}.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.core.images.media import Source
from toolwright.reading.task_rows.messages import read_messages
from toolwright.reading.task_rows.refusal import RowRefused
from toolwright.reading.task_rows.rows import (
    Columns,
    media_of_row,
    metadata_of,
    plain,
    read_row,
    text_of,
)
from toolwright.types import Task
from toolwright.wire import task_to_proto

IMAGE_COLUMNS, VIDEO_COLUMNS = ("images", "image"), ("videos", "video")
MEDIA_COLUMNS = IMAGE_COLUMNS + VIDEO_COLUMNS
COLUMNS = Columns(
    question=("prompt", "question"),
    messages=("messages",),
    answer=("answers", "answer", "reward_model.ground_truth", "golden_answers"),
    id=("id",),
)
_OWN = frozenset(
    path.partition(".")[0]
    for path in (
        *COLUMNS.question, *COLUMNS.messages, *COLUMNS.answer, *COLUMNS.id, *MEDIA_COLUMNS,
        "data_source", "metadata",
    )
)  # fmt: skip


def read_task(row: object, *, name: str, data_source: str) -> Task:
    """The row's task, without its media. name, data_source: defaults for the row.

    Raises RowRefused for an unusable row; `check_task` checks whether its values can be written.
    """
    found = read_row(row, COLUMNS)
    assert isinstance(row, Mapping)  # read_row has refused all others
    columns = {name: plain(value) for name, value in row.items() if _is_metadata(name, value)}
    return Task(
        id=found.id or name,
        data_source=text_of(row.get("data_source")) or data_source,
        prompt=found.question,
        messages=found.messages,
        answers=found.answers,
        metadata={**columns, **plain(metadata_of(row.get("metadata")))},
    )


def _is_metadata(name: str, value: object) -> bool:
    """Whether a column is metadata: not our own, nor a part of one such as `reward_model.style`."""
    return name.partition(".")[0] not in _OWN and not isinstance(value, bytes)


def as_read(task: object) -> Task:
    """A task that a function yielded, with messages in the form of a file's.

    Raises RowRefused unless it is a usable task.
    """
    if not isinstance(task, Task):
        raise RowRefused("not_a_task", f"{type(task).__name__}, not toolwright.types.Task")
    if task.messages:
        task = replace(task, messages=read_messages(task.messages))
    check_task(task)
    return task


def check_task(task: Task) -> None:
    """Raises RowRefused unless journal and tool services can hold the task."""
    try:
        task_to_proto(task).SerializeToString()
    except (AttributeError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise RowRefused(
            "not_json_like",
            f"its messages, answers or metadata hold values that are not JSON: {error}"[:500],
        ) from error


def read_media_sources(row: Mapping[str, Any], folder: Path) -> tuple[Source, ...]:
    """The row's images, then its videos: files below `folder`, or bytes. Raises RowRefused for
    anything else."""
    return tuple(
        folder / one if isinstance(one, str) else one
        for one in media_of_row(row, IMAGE_COLUMNS, VIDEO_COLUMNS)
    )
