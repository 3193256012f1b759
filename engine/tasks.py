"""Where questions come from: JSONL, Parquet, or a Python function.

A source is a deterministic endless stream per seed: files are shuffled anew every epoch by
(seed, epoch), functions get the seed. So position `i` of a source names the same task after a
restart, and nothing but a number has to be remembered.

Rows hold `prompt` or `messages` (or `question`), `answer` (text or list), and what else they
like: `id`, `data_source`, and `metadata` (an object); other columns join the metadata. verl's
Parquet files fit as they are: messages under `prompt`, the answer in `reward_model.ground_truth`.
Answers never join the metadata, which tools get to see.

`images` (or `image`) are media: paths relative to the file, bytes, or Hugging Face's {"bytes",
"path"}. They are read when their task's turn comes, not before.
"""

from __future__ import annotations

import inspect
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

from engine.errors import StartupError
from engine.images.media import Media, Source, read_media
from toolwright.imports import ImportPathError, load_object
from toolwright.types import MediaRef, Purpose, Task

OWN_COLUMNS = frozenset(
    (
        "id", "prompt", "messages", "question", "answer", "answers", "data_source", "metadata",
        "reward_model", "images", "image",
    )
)  # fmt: skip


_Row = tuple[Task, Sequence[Source]]


class TaskSource:
    """The endless stream of one source; `take` its first tasks or walk it in order."""

    def __init__(self, source: str, folder: Path, *, seed: int, shuffle: bool) -> None:
        """StartupError when the source cannot be read or has no rows."""
        self._name = source
        self._open: Callable[[], Iterator[_Row]]
        self._sources: dict[str, Source] = {}
        """Of the media of tasks that were given out, by hash."""
        self._rows: int | None = None
        if source.endswith((".jsonl", ".parquet")):
            rows = _read_rows(folder / source)
            self._rows = len(rows)
            self._open = lambda: _epochs(rows, seed, shuffle)
        else:
            function = _function(source, folder)
            self._open = lambda: ((task, ()) for task in function(seed))
        self._walk = self._open()
        self._position = 0

    def take(self, n: int) -> list[Task]:
        """The first n tasks, whatever was walked. StartupError when the source has fewer."""
        tasks = [self._checked(row) for row in islice(self._open(), n)]
        found = len(tasks) if self._rows is None else min(len(tasks), self._rows)
        if found < n:
            raise StartupError(
                f"task source {self._name} has {found} tasks, {n} are asked: give it more, or "
                "lower n of the evaluation suite that names it"
            )
        return tasks

    def at(self, position: int) -> Task:
        """Task number `position` from 0; walking forward is cheap, back starts anew."""
        if position < self._position:
            self._walk, self._position = self._open(), 0
        for row in self._walk:
            self._position += 1
            if self._position == position + 1:
                return self._checked(row)
        raise StartupError(
            f"task source {self._name} ended after {self._position} tasks; "
            "a training source never ends"
        )

    def media(self, task: Task) -> tuple[Media, ...]:
        """What `task.media` refers to, for a task of this source. StartupError where it changed."""
        found = tuple(self._read(task, self._sources[ref.blob.sha256]) for ref in task.media)
        if [media.blob for media in found] != [ref.blob for ref in task.media]:
            raise StartupError(f"task {task.id}: its media changed while the run goes on")
        return found

    def _read(self, task: Task, source: Source) -> Media:
        try:
            return read_media(source)
        except ValueError as error:
            raise StartupError(f"task {task.id}: {error}") from error

    def _checked(self, row: tuple[object, Sequence[Source]]) -> Task:
        task, sources = row
        if not isinstance(task, Task):
            raise StartupError(
                f"task source {self._name} yields {type(task).__name__}, not toolwright.types.Task"
            )
        if not sources:
            return task
        refs = []
        for source in sources:
            blob = self._read(task, source).blob
            self._sources[blob.sha256] = source
            refs.append(MediaRef(blob=blob, token_offset=0, placeholder_tokens=0))
        return replace(task, media=tuple(refs))


def _read_rows(file: Path) -> list[_Row]:
    if not file.is_file():
        raise StartupError(
            f"task source: no file {file}: put it there, or mend the `source` of [task] or of the "
            "evaluation suite that names it"
        )
    rows: Iterable[Mapping[str, Any]]
    if file.suffix == ".jsonl":
        rows = _jsonl(file)
    else:
        import pyarrow.parquet  # heavy, and only some recipes read Parquet

        rows = pyarrow.parquet.read_table(file).to_pylist()
    tasks: list[_Row] = [
        (_task(row, number, file), _media(row, number, file)) for number, row in enumerate(rows)
    ]
    if not tasks:
        raise StartupError(f"task source: {file} has no rows")
    return tasks


def _jsonl(file: Path) -> Iterator[Mapping[str, Any]]:
    with file.open() as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except json.JSONDecodeError as error:
                    raise StartupError(f"{file}:{number}: not JSON: {error}") from error


def _task(row: object, number: int, file: Path) -> Task:
    where = f"{file}, row {number + 1}"
    if not isinstance(row, dict):
        raise StartupError(f"{where}: a row is an object, not {type(row).__name__}")
    messages = row.get("messages")
    prompt = row.get("prompt") or row.get("question") or ""
    if isinstance(prompt, list):
        messages, prompt = prompt, ""
    if not messages and not prompt:
        raise StartupError(f"{where}: neither prompt, question nor messages")
    if not all(isinstance(message, dict) for message in messages or ()):
        raise StartupError(f'{where}: messages are objects with "role" and "content"')
    rest = {k: v for k, v in row.items() if k not in OWN_COLUMNS and _is_plain(v)}
    return Task(
        id=str(row.get("id", f"{file.stem}-{number}")),
        data_source=str(row.get("data_source", file.stem)),
        prompt=str(prompt),
        messages=tuple(messages or ()),
        answers=_answers(row),
        metadata={**rest, **_metadata(row, where)},
    )


def _media(row: Mapping[str, Any], number: int, file: Path) -> tuple[Source, ...]:
    given = row.get("images", row.get("image"))
    if given is None:
        return ()
    found: list[Source] = []
    for one in given if isinstance(given, list) else [given]:
        inside = (one.get("bytes") or one.get("path")) if isinstance(one, dict) else one
        if isinstance(inside, str) and inside:
            found.append(file.parent / inside)
        elif isinstance(inside, bytes):
            found.append(inside)
        else:
            raise StartupError(
                f"{file}, row {number + 1}: an image is a path, bytes or "
                f'{{"bytes", "path"}}, not {type(one).__name__}'
            )
    return tuple(found)


def _answers(row: Mapping[str, Any]) -> tuple[str, ...]:
    answers = row.get("answers", row.get("answer"))
    if answers is None and isinstance(row.get("reward_model"), dict):
        answers = row["reward_model"].get("ground_truth")
    if answers is None:
        return ()
    if not isinstance(answers, list):
        answers = [answers]
    return tuple(str(answer) for answer in answers)


def _metadata(row: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    metadata = row.get("metadata") or {}
    if isinstance(metadata, str):
        try:
            metadata = json.loads(metadata)
        except json.JSONDecodeError as error:
            raise StartupError(f"{where}: metadata is not JSON: {error}") from error
    if not isinstance(metadata, dict):
        raise StartupError(f"{where}: metadata is an object, not {type(metadata).__name__}")
    return metadata


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool | list | dict) or value is None


def _epochs(rows: list[_Row], seed: int, shuffle: bool) -> Iterator[_Row]:
    for epoch in count():
        order = list(range(len(rows)))
        if shuffle:
            random.Random(f"{seed}.{epoch}").shuffle(order)
        for position in order:
            yield rows[position]


def _function(source: str, folder: Path) -> Callable[[int], Iterable[Task]]:
    try:
        function = load_object(source, folder)
    except ImportPathError as error:
        raise StartupError(f"task source {error}") from error
    if not callable(function) or not inspect.signature(function).parameters:
        raise StartupError(
            f"task source {source!r}: write a function of one argument, the seed, that yields "
            "toolwright.types.Task"
        )
    return function  # type: ignore[no-any-return]


def for_purpose(task: Task, purpose: Purpose) -> Task:
    """The same task in the other lane."""
    return replace(task, purpose=purpose)
