"""The table of planted bugs, mutants.toml, and how one is planted in a copy of the tree.

Invariants
- `old` occurs once in its file, so a mutant is planted where its author meant it, or not at all.
- A planted bug changes what the code does (its syntax tree), in one line.
"""

from __future__ import annotations

import ast
import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("mutants.toml")


class MutantError(ValueError):
    """The table, or one of its mutants, does not fit the code; the message names both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One bug of one line."""

    name: str
    file: str
    """Path in the repository."""
    old: str
    new: str

    @property
    def digest(self) -> str:
        """The same for the same bug: results of another one do not count."""
        text = "\0".join((self.file, self.old, self.new))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def package(self) -> str:
        """The package whose promise it breaks. The credit formulas of `proto` are the learner's."""
        first = self.file.partition("/")[0]
        return "learner" if first == "proto" else first

    def planted(self, source: str) -> str:
        """The source with the bug in it. Raises MutantError unless `old` occurs once."""
        count = source.count(self.old)
        if count != 1:
            raise MutantError(
                f"mutant {self.name}: its old line occurs {count} times in {self.file}; "
                "correct it in tests/mutants/mutants.toml"
            )
        after = source.replace(self.old, self.new)
        try:
            same = ast.dump(ast.parse(source)) == ast.dump(ast.parse(after))
        except SyntaxError as error:
            raise MutantError(f"mutant {self.name} is not Python: {error}") from error
        if same:
            raise MutantError(f"mutant {self.name} changes nothing that Python reads")
        return after


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted(Mutant):
    """A bug that a test or the simulator should catch."""

    breaks: str
    """Name of an invariant in `bench/history/invariants`, or a promise in its own words."""
    simulated: bool
    """`bench simulate` runs the line, and one of its invariants is broken."""
    tests: tuple[tuple[str, ...], ...]
    """Lists of test paths, in the order of trying."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalent(Mutant):
    """A change that leaves the behaviour as it is."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """All planted bugs, and the changes that proved equivalent."""

    planted: tuple[Planted, ...]
    equivalent: tuple[Equivalent, ...]


def read_table(text: str) -> Table:
    """The table of a TOML text. Raises MutantError for an unknown list of tests, a missing or
    unknown key, or a name that occurs twice."""
    data: dict[str, Any] = tomllib.loads(text)
    lists: dict[str, list[str]] = data["tests"]
    planted, equivalent = [], []
    try:
        for row in data["mutant"]:
            tests = tuple(tuple(lists[name]) for name in row.pop("tests"))
            planted.append(Planted(**row, tests=tests))
        equivalent = [Equivalent(**row) for row in data["equivalent"]]
    except (KeyError, TypeError) as error:
        raise MutantError(f"tests/mutants/mutants.toml: {error}") from error
    names = [one.name for one in (*planted, *equivalent)]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise MutantError(f"mutants of one name: {', '.join(sorted(twice))}")
    return Table(planted=tuple(planted), equivalent=tuple(equivalent))


def table() -> Table:
    """The repository's own table."""
    return read_table(TABLE.read_text(encoding="utf-8"))
