"""How a published set looks, as data, and one of its rows as a record. Pure.

A column is named by its path: `reward_model.ground_truth` is inside of the column `reward_model`.
Where sets were published under several names for the same thing, all are listed, and the first that
a row has counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from tasks.record import Record
from toolwright.reading.task_rows.refusal import RowRefused
from toolwright.reading.task_rows.rows import MISSING, Columns, at, first, holds, plain, read_row

Kind = Literal["math", "qa", "sql", "visual", "deepsearch", "swe"]
MOST_NAMES = 12
"""Columns that an error lists."""
LAYOUT = "another_layout"
"""Kind of a refused row that lacks the set's columns, or holds something else in them."""


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
    question, messages, answer, id, images, videos: columns. extra: metadata, by the columns it may
    be from.
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
    videos: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reshape: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    held_out: HeldOut | None = None
    gold: bool = False

    @property
    def columns(self) -> Columns:
        return Columns(
            question=self.question,
            messages=self.messages,
            answer=self.answer,
            id=self.id,
            images=self.images,
            videos=self.videos,
        )


def record_of(
    layout: Layout, row: Mapping[str, Any], *, number: int, where: str, split: str = ""
) -> Record:
    """The row's record. Raises RowRefused if the row makes no question, of the kind LAYOUT if it is
    a row of another set.

    number: of the row in the whole set, from 0; where: its place, for people.
    """
    _check(layout, row, where)
    if layout.reshape is not None:
        try:
            row = layout.reshape(row)
        except RowRefused:
            raise
        except ValueError as error:
            raise _wrong(layout, where, str(error), row) from error
    found = read_row(row, layout.columns)
    if not found.answers:
        raise RowRefused("no_answer", "no answer")
    if layout.images and not found.images:
        raise RowRefused("no_image", "no image")
    source = row.get("data_source")
    question = found.question.strip()
    return Record(
        id=found.id or f"{layout.name}-{number}",
        data_source=source if isinstance(source, str) and source else layout.name,
        question=question,
        messages=() if question else found.messages,
        images=found.images,
        answer=found.answers,
        task=_kind(first(row, layout.kind)) or layout.task,
        split=split or _own_split(row) or layout.split,
        extra={
            key: plain(value)
            for key, paths in layout.extra.items()
            if holds(value := first(row, paths))
        },
    )


def with_mark(question: str) -> str:
    """With a question mark at its end, as Search-R1 prepares NQ and HotpotQA."""
    return question if not question or question.endswith("?") else question + "?"


def _check(layout: Layout, row: Mapping[str, Any], where: str) -> None:
    """Raises RowRefused if the row lacks columns."""
    sought = [
        ("question", (*layout.question, *layout.messages)),
        ("image", (*layout.images, *layout.videos)),
        ("answer", layout.answer),
    ]
    missing = [
        f"no {what} (looked for {', '.join(paths)})"
        for what, paths in sought
        if paths and first(row, paths) is MISSING
    ]
    if missing:
        raise _wrong(layout, where, " and ".join(missing), row)


def _kind(found: Any) -> str:
    """One of Kind; empty where another word, or none, stands there."""
    said = found.strip().lower() if isinstance(found, str) else ""
    return said if said in get_args(Kind) else ""


def _own_split(row: Mapping[str, Any]) -> str:
    split = at(row, "extra_info.split")
    return split if isinstance(split, str) else ""


def _wrong(layout: Layout, where: str, what: str, row: Mapping[str, Any]) -> RowRefused:
    names = [str(name)[:40] for name in list(row)[:MOST_NAMES]]
    more = f" and {len(row) - MOST_NAMES} more" if len(row) > MOST_NAMES else ""
    return RowRefused(
        LAYOUT,
        f"set {layout.name}: {where} has {what}; its columns are {', '.join(names) or 'none'}"
        f"{more}. Is it the file of another set? `tasks list` says what each has",
    )
