"""The right answers, in a file that no other tool and no policy sees.

The metadata of a session go to all its tools, so they name a question and never its answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolsvc.errors import Reason, Refused, StartError


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    question: str
    answers: tuple[str, ...]
    """Any of them is right."""


class References:
    """Of a file of JSON lines: `id`, `question` (or `prompt`), `answer` (or `answers`): a text, a
    number or a list, as in a recipe's file of tasks."""

    def __init__(self, path: Path, *, key: str) -> None:
        """`key`: what of a session's metadata names the question. StartError if the file cannot be
        read."""
        self._path = path
        self._key = key
        self._rows: dict[str, Reference] = {}
        number = 0
        try:
            with path.open(encoding="utf-8") as lines:
                for number, line in enumerate(lines, start=1):
                    if line.strip():
                        self._add(json.loads(line), number)
        except (OSError, TypeError, ValueError) as error:
            raise StartError(f"judge.references={path}, line {number}: {error}") from error
        if not self._rows:
            raise StartError(f"judge.references={path} holds no question")

    def find(self, metadata: Mapping[str, Any]) -> Reference:
        """Of the question that the session is about; of the only one, where the file holds one.
        Refused if the metadata name none that is there."""
        if len(self._rows) == 1:
            return next(iter(self._rows.values()))
        name = metadata.get(self._key)
        found = self._rows.get(_text(name)) if isinstance(name, str | int | float) else None
        if found is None:
            raise Refused(
                Reason.INVALID_REQUEST,
                f"metadata.{self._key} is {name!r:.80}, no id of judge.references",
                subject=self._key,
                fix=f"give each task its question's id as metadata.{self._key}",
            )
        return found

    def _add(self, row: object, number: int) -> None:
        if not isinstance(row, dict):
            raise TypeError("not a JSON object")
        question = row.get("question", row.get("prompt"))
        answers = row.get("answers", row.get("answer"))
        answers = answers if isinstance(answers, list) else [answers]
        if not isinstance(question, str) or not answers:
            raise ValueError("a row has question (a text) and answer")
        if not all(isinstance(one, str | int | float) for one in answers):
            raise ValueError("an answer is a text, a number, or a list of such")
        name = _text(row.get("id", number))
        if name in self._rows:
            raise ValueError(f"the id {name!r} comes a second time")
        self._rows[name] = Reference(question=question, answers=tuple(map(_text, answers)))


def _text(value: object) -> str:
    """Numbers of metadata come as floats: 7.0 is 7."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
