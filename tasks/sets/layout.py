"""How a published set looks, as data, and one of its rows as a record. Pure.

A column is named by its path: `reward_model.ground_truth` is inside of the column `reward_model`.
Where sets were published under several names for the same thing, all are listed, and the first that
a row has counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from tasks.errors import WrongLayout
from tasks.record import Record, answers_of, plain

Kind = Literal["math", "qa", "sql", "visual", "deepsearch", "swe"]
MOST_NAMES = 12
"""Columns that an error lists."""
MISSING = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Rows that a set's users keep out of training: those that come first when all are permuted.

    The rule of Hugging Face's `train_test_split(test_size=rows, seed=seed)`, so that the rows are
    the same ones.
    """

    rows: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One set.

    task: of its rows, but for those that name another in one of the columns `kind`.
    title: what it asks for. rows: as published. where: the name under which it is published.
    question, messages, answer, id, images: columns. extra: metadata, by the columns it may be from.
    reshape: a row with what is no column of its own; ValueError says what is wrong with it.
    gold: the set comes with a second file, a line for each row.
    """

    name: str
    title: str
    task: Kind
    split: str
    rows: str
    where: str
    question: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    answer: tuple[str, ...]
    id: tuple[str, ...] = ("id",)
    images: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reshape: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    held_out: HeldOut | None = None
    gold: bool = False


class Rejected(ValueError):
    """A row of the right layout that makes no question. The text is one of few, for counting."""


def record_of(
    layout: Layout, row: Mapping[str, Any], *, number: int, where: str, split: str = ""
) -> Record:
    """The row's record. WrongLayout where columns are missing, Rejected where they hold nothing.

    number: of the row in the whole set, from 0; where: its place, for people.
    """
    _check(layout, row, where)
    if layout.reshape is not None:
        try:
            row = layout.reshape(row)
        except ValueError as error:
            raise _wrong(layout, where, str(error), row) from error
    question = _first(row, layout.question)
    messages = _first(row, layout.messages)
    answer = _first(row, layout.answer)
    images = _first(row, layout.images)
    try:
        answers = answers_of(answer)
    except ValueError as error:
        raise _wrong(layout, where, f"an answer of {error}", row) from error
    if not answers:
        raise Rejected("no answer")
    asked = _question(question)
    said = () if asked else _messages(messages, layout, where, row)
    if not asked and not said:
        raise Rejected("no question")
    shown = tuple(_images(images, layout, where, row))
    if layout.images and not shown:
        raise Rejected("no image")
    name = _first(row, layout.id)
    source = row.get("data_source")
    return Record(
        id=f"{layout.name}-{number}" if name is MISSING or name is None else f"{name}",
        data_source=source if isinstance(source, str) and source else layout.name,
        question=asked,
        messages=said,
        images=shown,
        answer=answers,
        task=_kind(_first(row, layout.kind)) or layout.task,
        split=split or _own_split(row) or layout.split,
        extra={
            key: plain(value)
            for key, paths in layout.extra.items()
            if (value := _first(row, paths)) is not MISSING and value is not None
        },
    )


def with_mark(question: str) -> str:
    """With a question mark at its end, as Search-R1 prepares NQ and HotpotQA."""
    return question if not question or question.endswith("?") else question + "?"


def _check(layout: Layout, row: Mapping[str, Any], where: str) -> None:
    """WrongLayout where the row lacks columns."""
    sought = [
        ("question", (*layout.question, *layout.messages)),
        ("image", layout.images),
        ("answer", layout.answer),
    ]
    missing = [
        f"no {what} (looked for {', '.join(paths)})"
        for what, paths in sought
        if paths and _first(row, paths) is MISSING
    ]
    if missing:
        raise _wrong(layout, where, " and ".join(missing), row)


def _first(row: Mapping[str, Any], paths: Iterable[str]) -> Any:
    """The first path that holds something; else nothing where a path is there, else MISSING."""
    found: Any = MISSING
    for path in paths:
        value = _at(row, path)
        if (
            value is not MISSING
            and value is not None
            and not (isinstance(value, str) and not value)
        ):
            return value
        found = None if value is not MISSING else found
    return found


def _at(row: Any, path: str) -> Any:
    for name in path.split("."):
        if not isinstance(row, Mapping) or name not in row:
            return MISSING
        row = row[name]
    return row


def _kind(found: Any) -> str:
    """One of Kind; empty where another word, or none, stands there."""
    said = found.strip().lower() if isinstance(found, str) else ""
    return said if said in get_args(Kind) else ""


def _question(found: Any) -> str:
    if isinstance(found, bool) or (isinstance(found, float) and not math.isfinite(found)):
        return ""  # how tables write that there is nothing
    return str(found).strip() if isinstance(found, str | int | float) else ""


def _messages(
    found: Any, layout: Layout, where: str, row: Mapping[str, Any]
) -> tuple[Mapping[str, Any], ...]:
    if found is MISSING or found is None:
        return ()
    found = plain(found)
    if isinstance(found, str):
        return ({"role": "user", "content": found},) if found.strip() else ()
    if isinstance(found, list) and all(
        isinstance(one, dict) and "role" in one and "content" in one for one in found
    ):
        return tuple(found)
    raise _wrong(layout, where, "messages that are no list of role and content", row)


def _images(
    found: Any, layout: Layout, where: str, row: Mapping[str, Any]
) -> Iterable[str | bytes]:
    if found is MISSING or found is None:
        return
    for one in found if isinstance(found, list | tuple) else [found]:
        inside = (one.get("bytes") or one.get("path")) if isinstance(one, Mapping) else one
        if not isinstance(inside, str | bytes) or not inside:
            raise _wrong(layout, where, "an image that is neither a path nor bytes", row)
        yield inside


def _own_split(row: Mapping[str, Any]) -> str:
    split = _at(row, "extra_info.split")
    return split if isinstance(split, str) else ""


def _wrong(layout: Layout, where: str, what: str, row: Mapping[str, Any]) -> WrongLayout:
    names = [str(name)[:40] for name in list(row)[:MOST_NAMES]]
    more = f" and {len(row) - MOST_NAMES} more" if len(row) > MOST_NAMES else ""
    return WrongLayout(
        f"set {layout.name}: {where} has {what}; its columns are {', '.join(names) or 'none'}"
        f"{more}. Is it the file of another set? `tasks list` says what each has"
    )
