"""One question, whatever set it is from: the record that every loader and every world yields.

Invariants
- `answer` holds at least one text, each with something in it; other questions are rejected.
- Either `question` or `messages` is there.
- No answer, solution or patch stands in `extra`: it becomes the metadata of a task, which tool
  services are told.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolwright.reading.task_rows.rows import answers_of
from toolwright.types import Task

__all__ = ["Record", "answers_of", "line_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A question and its right answers.

    images: paths, relative to a folder that its reader was told, or contents; videos after images.
    task: math, qa, sql, visual, deepsearch or swe. extra: what tools and rewards need besides.
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
        """As a row of a JSONL file that [task] `source` may name. Raises TypeError if images are
        contents: only the writer of the file knows where those go."""
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


def line_of(row: Mapping[str, Any]) -> str:
    """A row as a line of JSONL, with its end; always UTF-8, also of half a surrogate pair."""
    line = json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        line.encode()
    except UnicodeEncodeError:
        return json.dumps(row, allow_nan=False) + "\n"
    return line
