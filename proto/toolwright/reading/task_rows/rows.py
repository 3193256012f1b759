"""One row of a file as a question with its answers. Pure.

The engine reads its own format and verl's, `tasks` reads published sets. Both name columns; this
module alone reads what stands in a column.

A column is named by its path: `reward_model.ground_truth` is inside the column `reward_model`. If
several columns name one thing, the first that holds something counts: a file that was mixed from
two sets has both columns, one of them null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from toolwright.json_data import MOST_DEPTH
from toolwright.reading.task_rows.data import data_in, texts_in
from toolwright.reading.task_rows.messages import read_messages, stands_for_messages
from toolwright.reading.task_rows.refusal import RowRefused

DEEPEST = 8
"""Lists inside lists of an answer: a file could nest them without end."""
MISSING = object()
"""The row has no such column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Paths of the columns with question, messages, answer, id, images and videos.

    A question may be a text, or the messages themselves; the messages may be a text.
    """

    question: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    answer: tuple[str, ...] = ()
    id: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    videos: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A row's question with what belongs to it."""

    question: str
    """Text of the question; "" if the row has messages alone."""
    messages: tuple[Mapping[str, Any], ...]
    answers: tuple[str, ...]
    """Right answers, each once, in their order."""
    id: str
    """Name of the row; "" if it has none."""
    images: tuple[str | bytes, ...]
    """Paths or contents of images, then of videos."""


def read_json(line: bytes | str) -> Any:
    """The JSON of a line. Raises RowRefused if it is not JSON in UTF-8."""
    try:
        return json.loads(line.decode("utf-8-sig") if isinstance(line, bytes) else line)
    except UnicodeDecodeError as error:
        raise RowRefused("not_utf8", f"not UTF-8: {error}") from error
    except (ValueError, RecursionError) as error:
        raise RowRefused("not_json", f"not JSON: {error}") from error


def read_row(row: object, columns: Columns) -> Question:
    """The row's question. Raises RowRefused if it has none, or if a column does not hold
    what its name says. A row without an answer is returned: the caller decides."""
    if not isinstance(row, Mapping):
        raise RowRefused(
            "not_an_object", f"a row is one JSON object a line, not {type(row).__name__}"
        )
    asked = first(row, columns.question)
    messages: tuple[Mapping[str, Any], ...] = ()
    question = ""
    if hasattr(asked, "tolist") and not isinstance(asked, float):
        asked = asked.tolist()
    if isinstance(asked, list | tuple) or (isinstance(asked, str) and stands_for_messages(asked)):
        messages = read_messages(asked)
    else:
        question = question_of(asked)
    if not messages and holds(given := first(row, columns.messages)):
        messages = read_messages(given)
    if not messages and not question.strip():
        if holds(asked) and not isinstance(asked, str | int | float):
            raise RowRefused("no_question", f"the prompt is {type(asked).__name__}, not text")
        raise RowRefused(
            "no_question",
            f"no question in {', '.join((*columns.question, *columns.messages))}",
        )
    return Question(
        question=question,
        messages=messages,
        answers=_answers(row, columns.answer),
        id=text_of(first(row, columns.id)),
        images=media_of_row(row, columns.images, columns.videos),
    )


def first(row: Mapping[str, Any], paths: Iterable[str]) -> Any:
    """The first value under one of the paths that holds something; else None if the row has one of
    the columns, else MISSING."""
    found: Any = MISSING
    for path in paths:
        value = at(row, path)
        if holds(value):
            return value
        found = found if value is MISSING else None
    return found


def at(row: Any, path: str) -> Any:
    """The value under a path, or MISSING. An object inside a text is opened: a table that went
    through CSV holds objects so."""
    if isinstance(row, Mapping) and path in row:
        return row[path]
    for name in path.split("."):
        if isinstance(row, str) and row.lstrip().startswith("{"):
            try:
                row = data_in(row)
            except ValueError:
                return MISSING
        if not isinstance(row, Mapping) or name not in row:
            return MISSING
        row = row[name]
    return row


def holds(value: Any) -> bool:
    """Whether a cell holds anything: null, NaN, blanks and empty lists are how tables say no."""
    if value is MISSING or value is None:
        return False
    if isinstance(value, float):
        return not math.isnan(value)
    if isinstance(value, str):
        return bool(value.strip())
    return not (isinstance(value, list | tuple | dict) and not value)


def question_of(value: Any) -> str:
    """The text of a question; "" for a value that is not a question."""
    if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return text_of(value) if isinstance(value, str | bytes | int | float) else ""


def text_of(value: Any) -> str:
    """A cell as a text. A whole number that a table holds as 7.0 is "7"; "" if it holds nothing."""
    if hasattr(value, "item") and not hasattr(value, "__len__"):  # NumPy's scalars
        value = value.item()
    if not holds(value):
        return ""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise RowRefused("not_utf8", f"bytes that are not UTF-8: {error}") from error
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)


def answers_of(value: Any) -> tuple[str, ...]:
    """A published ground truth as texts, each once, in their order; empty if it says nothing.

    A text, a number, a list, a NumPy array, an object with `target`, or a text that holds a list of
    texts. Only the outermost text is opened: an answer that looks like a list is written into one.
    Raises RowRefused for other values.
    """
    if isinstance(value, str):
        value = _opened(value)
    return _answers_of(value, 0)


MEDIA_KEYS = ("bytes", "path", "image", "video")
"""Where an object of a column with images or videos has its content or its path."""


def media_of_row(row: Mapping[str, Any], *kinds: tuple[str, ...]) -> tuple[str | bytes, ...]:
    """Paths or contents in a row's columns, kind after kind. kinds: paths of the columns that one
    kind of media may be in. Raises RowRefused like `images_of`."""
    return tuple(one for paths in kinds for one in images_of(first(row, paths)))


def images_of(value: Any) -> Iterable[str | bytes]:
    """Paths or contents: a list of them, Hugging Face's {"bytes", "path"}, or the {"image": path}
    and {"video": path} of verl's rows. Raises RowRefused for others."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, list | tuple):
        value = [value] if value is not MISSING and value is not None else []
    for one in value:
        inside = first(one, MEDIA_KEYS) if isinstance(one, Mapping) else one
        if not isinstance(inside, str | bytes) or not inside or "\0" in str(inside):
            raise RowRefused(
                "images",
                f'an image is a path, bytes or {{"bytes", "path"}}, not {type(one).__name__}',
            )
        yield inside


def metadata_of(value: Any) -> Mapping[str, Any]:
    """An object, or the text of one; empty if the cell is empty. Raises RowRefused for others."""
    if isinstance(value, str) and value.strip():
        try:
            value = data_in(value)
        except ValueError as error:
            raise RowRefused("metadata", f"metadata is not JSON: {error}") from error
    if not holds(value):
        return {}
    if not isinstance(value, Mapping):
        raise RowRefused("metadata", f"metadata is an object, not {type(value).__name__}")
    return value


def plain(value: Any, depth: int = 0) -> Any:
    """A column's value as JSON has it. Contents in bytes become None: they are not metadata.
    Raises RowRefused for data that are nested too deeply to be sent."""
    if depth > MOST_DEPTH:
        raise RowRefused("not_json_like", f"a column is nested more than {MOST_DEPTH} levels deep")
    if isinstance(value, Mapping):
        return {str(name): plain(one, depth + 1) for name, one in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist(), depth + 1)
    if isinstance(value, list | tuple):
        return [plain(one, depth + 1) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, date) else None


def _answers(row: Mapping[str, Any], paths: Iterable[str]) -> tuple[str, ...]:
    """The answers of the first path that has some."""
    for path in paths:
        if answers := answers_of(at(row, path)):
            return answers
    return ()


def _opened(text: str) -> Any:
    """The list, or the object with `target`, that stands in a text; else the text."""
    inside = text.strip()
    if inside.startswith("{") and inside.endswith("}"):
        try:
            found = data_in(inside)
        except ValueError:
            return text
        return found if isinstance(found, Mapping) and list(found) == ["target"] else text
    texts = texts_in(inside)
    return text if texts is None else texts


def _answers_of(value: Any, depth: int) -> tuple[str, ...]:
    if depth > DEEPEST:
        raise RowRefused("answer", f"answers are nested more than {DEEPEST} deep")
    if isinstance(value, Mapping):
        if "target" not in value:
            names = ", ".join(str(name)[:40] for name in list(value)[:8]) or "nothing"
            raise RowRefused("answer", f'an answer is an object with {names}: it needs "target"')
        return _answers_of(value["target"], depth + 1)
    if hasattr(value, "tolist"):  # NumPy's arrays and scalars
        return _answers_of(value.tolist(), depth + 1)
    if isinstance(value, list | tuple):
        return tuple(dict.fromkeys(text for one in value for text in _answers_of(one, depth + 1)))
    if not holds(value):
        return ()
    if isinstance(value, date):
        value = value.isoformat()
    if isinstance(value, str | bytes | int | float | Decimal):
        text = text_of(value).strip()
        return (text,) if text else ()
    raise RowRefused(
        "answer", f"an answer is {type(value).__name__}: write a text, a number or a list of them"
    )
