"""One question, whatever set it is from: the record that every loader and every world yields.

Invariants
- `answer` holds at least one text, each with something in it; other questions are rejected.
- Either `question` or `messages` is there.
- No answer, solution or patch stands in `extra`: it becomes the metadata of a task, which tool
  services are told.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any

from toolwright.types import Task

DEEPEST = 8
"""Lists inside lists of an answer, or of an extra: a file could nest them without end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A question and its right answers.

    images: paths, relative to the folder that its reader was told, or contents. task: math, qa,
    sql, visual, deepsearch or swe. extra: what tools and rewards need besides.
    """

    id: str
    data_source: str
    answer: tuple[str, ...]
    task: str
    split: str
    question: str = ""
    messages: tuple[Mapping[str, Any], ...] = ()
    images: tuple[str | bytes, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """As a row of a JSONL file that [task] `source` may name. TypeError where images are
        contents: only whoever writes the file knows where those go."""
        asked: dict[str, Any] = (
            {"question": self.question} if self.question else {"messages": list(self.messages)}
        )
        if any(isinstance(image, bytes) for image in self.images):
            raise TypeError(f"record {self.id}: images that are contents do not fit in JSON")
        return {
            "id": self.id,
            "data_source": self.data_source,
            **asked,
            **({"images": list(self.images)} if self.images else {}),
            "answer": list(self.answer),
            "metadata": self.metadata(),
        }

    def as_task(self) -> Task:
        """As what a Python task source yields. Images are not handed over: only a file can."""
        return Task(
            id=self.id,
            data_source=self.data_source,
            prompt=self.question,
            messages=() if self.question else self.messages,
            answers=self.answer,
            metadata=self.metadata(),
        )

    def metadata(self) -> dict[str, Any]:
        return {"task": self.task, "split": self.split, **self.extra}


def answers_of(value: object, depth: int = 0) -> tuple[str, ...]:
    """A published ground truth as texts, each once, in their order; empty where it says nothing.

    A text, a number, a list, a numpy array, or a mapping with `target`. ValueError for anything
    else. A whole number that a table holds as 7.0 is "7".
    """
    if depth > DEEPEST:
        raise ValueError(f"lists nested more than {DEEPEST} deep")
    if isinstance(value, Mapping):
        if "target" not in value:
            raise ValueError(f'an object without "target", but {_names(value)}')
        return answers_of(value["target"], depth + 1)
    if hasattr(value, "tolist"):  # numpy's arrays and scalars
        return answers_of(value.tolist(), depth + 1)
    if isinstance(value, list | tuple):
        return tuple(dict.fromkeys(text for one in value for text in answers_of(one, depth + 1)))
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str | int | float | Decimal):
        text = str(value).strip()
        return (text,) if text else ()
    raise ValueError(f"{type(value).__name__}, which is neither text, number nor list")


def plain(value: object, depth: int = 0) -> Any:
    """A column's value as JSON has it. Contents in bytes become None: they are no metadata."""
    if depth > DEEPEST:
        return None
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
    return value.isoformat() if isinstance(value, date) else None


def line_of(row: Mapping[str, Any]) -> str:
    """A row as a line of JSONL, with its end; always UTF-8, also of half a surrogate pair."""
    line = json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        line.encode()
    except UnicodeEncodeError:
        return json.dumps(row, allow_nan=False) + "\n"
    return line


def _names(value: Mapping[Any, Any]) -> str:
    return ", ".join(str(name)[:40] for name in list(value)[:8]) or "nothing"
