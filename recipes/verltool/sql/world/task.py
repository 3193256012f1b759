"""The world of the demonstration: questions about the three databases, and their right rows.

    - sum      one of four aggregates over what an owner has   a join; the name has to be looked up
    - column   one of two columns of an owner                  the name has to be looked up
    - order    the first or last thing of a year by a measure  nothing has to be looked up

A wording never names the aggregate, column or order that it asks for in SQL's words: which one it
is has to be found out.

Owns wordings, right queries and the split. Invariants
- A question depends on nothing but the seed and its position.
- No owner and no year that training asks about is in a held-out question.
- No other choice for the same wording gives the right rows: being right is no accident.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from tasks.judging.gold_rows import Gold, gold_of
from tasks.judging.tables import same_rows
from tasks.worlds.questions import held_out, question_task, wordings
from tasks.worlds.rounds import in_turn, rounds
from toolwright.types import Task

from .databases import DATABASES, DOMAINS, YEARS, Domain, Owner, fill, owners

Kind = Literal["sum", "column", "order"]
KINDS: tuple[Kind, ...] = ("sum", "column", "order")
LOOKED_UP: tuple[Kind, ...] = ("sum", "column")

WORDINGS = {name: wordings(Path(__file__).with_name("wordings.txt"), name) for name in DOMAINS}
"""By database and kind, in the order of `choices`; {x} is an owner or a year."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseQuestion:
    """wording: its number among those of its domain and kind, which is that of the right choice.
    about: who or what year is asked about, as the question and as the tables write it."""

    domain: Domain
    kind: Kind
    wording: int
    about: Owner

    @property
    def text(self) -> str:
        return WORDINGS[self.domain.name][self.kind][self.wording].format(x=self.about.name)

    def query(self, choice: int, literal: str = "") -> str:
        """The query that compares with the literal, by default the stored one."""
        literal = literal or self.about.stored
        select = choices(self.domain, self.kind)[choice]
        one = self.domain
        if self.kind == "sum":
            return (
                f"{select} FROM {one.thing} JOIN {one.owner} ON {one.owner}.id = {one.owner_id} "
                f"WHERE name = '{literal}'"
            )
        if self.kind == "column":
            return f"{select} FROM {one.owner} WHERE name = '{literal}'"
        end = ("DESC", "ASC")[choice]
        return (
            f"{select} FROM {one.thing} WHERE year = {literal} ORDER BY {one.measure} {end} LIMIT 1"
        )

    @property
    def look_up(self) -> str:
        """The query that finds how the tables write the name."""
        return f"SELECT name FROM {self.domain.owner} WHERE name LIKE '{self.about.name}%'"


def choices(domain: Domain, kind: Kind) -> tuple[str, ...]:
    """What a query of this kind may begin with; the wording says which."""
    measure = domain.measure
    return {
        "sum": tuple(
            f"SELECT {one}"
            for one in ("COUNT(*)", f"SUM({measure})", f"MAX({measure})", f"MIN({measure})")
        ),
        "column": (f"SELECT {domain.place}", f"SELECT {domain.since}"),
        "order": (f"SELECT {domain.label}", f"SELECT {domain.label}"),
    }[kind]


def every_question(kind: Kind, seed: int, *, held: bool) -> Iterator[tuple[DatabaseQuestion, Gold]]:
    """All of one kind that can be asked, in a fixed order. seed: of the databases."""
    for domain in DOMAINS.values():
        with contextlib.closing(sqlite3.connect(":memory:")) as connection:
            fill(connection, domain, seed)
            years = [Owner(name=str(year), stored=str(year)) for year in YEARS]
            for about in years if kind == "order" else owners(domain, seed):
                if held_out(about.name) is not held:
                    continue
                for wording in range(len(choices(domain, kind))):
                    one = DatabaseQuestion(domain=domain, kind=kind, wording=wording, about=about)
                    gold = right_rows(connection, one)
                    if gold is not None:
                        yield one, gold


def right_rows(connection: sqlite3.Connection, one: DatabaseQuestion) -> Gold | None:
    """None where there are no rows, or another choice gives the same ones."""
    found = [
        gold_of(connection, one.query(choice))
        for choice in range(len(choices(one.domain, one.kind)))
    ]
    gold = found.pop(one.wording)
    by_accident = any(same_rows(wrong.rows, gold.rows, ordered=gold.ordered) for wrong in found)
    return None if by_accident or not gold.rows else gold


def training(seed: int) -> Iterator[Task]:
    """Endless: the three kinds in turn."""
    return _tasks("train", in_turn(*(_endless(kind, seed, held=False) for kind in KINDS)))


def looked_up(seed: int) -> Iterator[Task]:
    """Endless: about owners that training never asks about."""
    both = in_turn(*(_endless(kind, seed, held=True) for kind in LOOKED_UP))
    return _tasks("heldout-looked-up", both)


def direct(seed: int) -> Iterator[Task]:
    """Endless: about years that training never asks about; one query answers."""
    return _tasks("heldout-direct", _endless("order", seed, held=True))


@cache
def _asked(kind: Kind, held: bool) -> tuple[tuple[DatabaseQuestion, Gold], ...]:
    return tuple(every_question(kind, DATABASES, held=held))


def _endless(kind: Kind, seed: int, *, held: bool) -> Iterator[tuple[DatabaseQuestion, Gold]]:
    return rounds(_asked(kind, held), random.Random(f"{kind} {held} {seed}"))


def _tasks(name: str, stream: Iterator[tuple[DatabaseQuestion, Gold]]) -> Iterator[Task]:
    for number, (one, gold) in enumerate(stream):
        told = {"database": one.domain.name}
        yield question_task(f"{name}-{number}", one.text, gold.answer(), source=one.kind, **told)
