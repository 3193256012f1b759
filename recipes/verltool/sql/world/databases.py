"""Three generated databases: a library, a shop and an airline.

Each has owners (authors, makers, airports) and what is theirs (books, products, flights). An
owner's name stands in the tables with a number after it, "Alda Merrin 48", which no question
writes: a query that compares names has to look one up first.

    python -m toolwright.script world/databases.py --output databases

A database is the file <output>/<name>/<name>.sqlite.

Owns the schemas and the rows. Invariants
- The same seed makes the same rows.
- No two things of a database have the same measure, so that an order is never a matter of luck.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tasks.worlds.names import draw_names
from toolwright.script import Output

DATABASES = 1
"""The seed of the databases that are asked about; demonstrations are set in others."""
OWNERS = 80
MOST_THINGS = 5  # of one owner; each has two at least
NUMBERS = range(10, 100)  # behind the names of owners
YEARS = range(1950, 2000)
MEASURES = range(100, 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """One database. owner, thing: its tables; names: the kind of the owners' names.

    place and since are columns of an owner, label and measure of a thing; both tables have an `id`,
    and a thing has the `year` and its owner's id.
    """

    name: str
    owner: str
    names: str
    place: str
    places: tuple[str, ...]
    since: str
    thing: str
    label: str
    measure: str

    @property
    def owner_id(self) -> str:
        return f"{self.owner}_id"

    def schema(self) -> str:
        return (
            f"CREATE TABLE {self.owner} (id INTEGER PRIMARY KEY, name TEXT, {self.place} TEXT, "
            f"{self.since} INTEGER);\n"
            f"CREATE TABLE {self.thing} (id INTEGER PRIMARY KEY, {self.owner_id} INTEGER "
            f"REFERENCES {self.owner}(id), {self.label} TEXT, year INTEGER, "
            f"{self.measure} INTEGER);"
        )


DOMAINS: Mapping[str, Domain] = {
    domain.name: domain
    for domain in (
        Domain(
            name="library",
            owner="author",
            names="person",
            place="country",
            places=("Chile", "Egypt", "Japan", "Kenya", "Nepal", "Spain"),
            since="born",
            thing="book",
            label="title",
            measure="pages",
        ),
        Domain(
            name="shop",
            owner="maker",
            names="company",
            place="city",
            places=("Basel", "Cairo", "Dakar", "Hanoi", "Lagos", "Quito"),
            since="founded",
            thing="product",
            label="label",
            measure="price",
        ),
        Domain(
            name="airline",
            owner="airport",
            names="town",
            place="region",
            places=("coast", "delta", "hills", "islands", "plains", "steppe"),
            since="opened",
            thing="flight",
            label="code",
            measure="seats",
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """name: as people say it; stored: as the tables have it."""

    name: str
    stored: str


def owners(domain: Domain, seed: int) -> list[Owner]:
    """In the order of their ids."""
    draw = random.Random(f"owners {domain.name} {seed}")
    return [
        Owner(name=name, stored=f"{name} {draw.choice(NUMBERS)}")
        for name in draw_names(domain.names, OWNERS, draw)
    ]


def fill(connection: sqlite3.Connection, domain: Domain, seed: int) -> None:
    """Makes the tables and their rows in an empty database."""
    draw = random.Random(f"rows {domain.name} {seed}")
    everyone = owners(domain, seed)
    counts = [draw.randint(2, MOST_THINGS) for _ in everyone]
    measures = iter(draw.sample(MEASURES, sum(counts)))
    labels = iter(draw.sample(range(1000, 10_000), sum(counts)))
    connection.executescript(domain.schema())
    connection.executemany(
        f"INSERT INTO {domain.owner} (name, {domain.place}, {domain.since}) VALUES (?, ?, ?)",
        [(one.stored, draw.choice(domain.places), draw.choice(YEARS)) for one in everyone],
    )
    connection.executemany(
        f"INSERT INTO {domain.thing} ({domain.owner_id}, {domain.label}, year, {domain.measure}) "
        "VALUES (?, ?, ?, ?)",
        [
            (owner, f"{domain.label[0].upper()}{next(labels)}", draw.choice(YEARS), next(measures))
            for owner, count in enumerate(counts, 1)
            for _ in range(count)
        ],
    )
    connection.commit()


def write(folder: Path, *, seed: int = DATABASES) -> None:
    """Writes each database to `<folder>/<name>/<name>.sqlite`."""
    for domain in DOMAINS.values():
        path = folder / domain.name / f"{domain.name}.sqlite"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            fill(connection, domain, seed)


def main(*, output: Output) -> None:
    """Write the three databases into a folder."""
    write(output)
    print(f"{len(DOMAINS)} databases: {output}")
