"""What a run was told: the recipes as each process read them, RUN/*.resolved.json, as one.

The processes of a run read the same recipe, so their files agree on the shared tables, and each
has its own. Where they do not, since one was started later with other words, the newest file
counts. A file that cannot be read costs its own tables and is remarked upon.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from console.config import Words
from console.record.lines import LATEST_STEP
from toolwright.reading.files import open_regular

RESOLVED = (
    "engine.resolved.json",
    "learner.resolved.json",
    "sft.resolved.json",
    "console.resolved.json",
)
LARGEST = 4 << 20
_OF_THE_FILE = ("recipe", "extends")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """values: tables by name, the shared ones at the top. recipe: the file that was read.

    flat: dotted keys with their values as JSON; of a list of tables each under its name.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    flat: Mapping[str, str] = field(default_factory=dict)
    recipe: str = ""
    remarks: tuple[str, ...] = ()

    def get(self, key: str) -> Any:
        """The value of a dotted key; None for an absent one."""
        found: Any = self.values
        for part in key.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return found

    def whole(self, key: str) -> int | None:
        """The whole number of a dotted key, where there is one."""
        found = self.get(key)
        whole = isinstance(found, int) and not isinstance(found, bool)
        return found if whole and abs(found) <= LATEST_STEP else None

    def text(self, key: str) -> str:
        """The text of a dotted key; "" for an absent one."""
        found = self.get(key)
        return found if isinstance(found, str) else ""

    @property
    def control(self) -> bool:
        """Nothing can be learnt at a rate of 0."""
        rate = self.get("learner.optimizer.lr")
        return isinstance(rate, int | float) and rate == 0

    @property
    def suites(self) -> dict[str, float | None]:
        """Temperatures of the suites that are evaluated, in the recipe's order."""
        rows = self.get("engine.evaluation.suites")
        found: dict[str, float | None] = {}
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and isinstance(row.get("name"), str):
                heat = row.get("temperature")
                found[row["name"]] = float(heat) if isinstance(heat, int | float) else None
        return found

    @property
    def words(self) -> Words:
        """What the report says in words; nothing where the run was not told."""
        try:
            return Words.model_validate(self.get("console.report") or {})
        except ValidationError:
            return Words()


def read_resolved(folder: Path) -> Resolved:
    """The resolved recipes of a run folder; empty without such files."""
    values: dict[str, Any] = {}
    flat: dict[str, str] = {}
    recipe = ""
    remarks = []
    for file in _oldest_first(folder):
        try:
            with open_regular(file) as opened:
                found = json.loads(opened.read(LARGEST))
            flat |= dict(dotted(found))
        except (OSError, ValueError, RecursionError) as error:
            remarks.append(f"{file} cannot be read ({error}): its keys are not compared")
            continue
        if not isinstance(found, dict):
            remarks.append(f"{file} holds no tables: its keys are not compared")
            continue
        if isinstance(found.get("recipe"), str):
            recipe = found["recipe"]
        shared = found.get("shared")
        values |= shared if isinstance(shared, dict) else {}
        values |= {k: v for k, v in found.items() if k not in ("shared", *_OF_THE_FILE)}
    return Resolved(values=values, flat=flat, recipe=recipe, remarks=tuple(remarks))


def _oldest_first(folder: Path) -> list[Path]:
    """Those that are there; of files of one instant in the order of RESOLVED."""
    found = []
    for place, file in enumerate(folder / name for name in RESOLVED):
        with suppress(OSError):
            if file.is_file():
                found.append((file.stat().st_mtime_ns, place, file))
    return [file for _, _, file in sorted(found)]


def dotted(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Dotted keys of nested tables with their values as JSON, as `Resolved.flat` has them."""
    if isinstance(value, list) and (named := _by_name(value)):
        value = named
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from dotted(inner, path if not path and key == "shared" else (*path, key))
    else:
        yield ".".join(path), json.dumps(value, ensure_ascii=False)


def _by_name(tables: list[Any]) -> dict[str, Any]:
    """Tables by their names, such as those of suites; empty where one has none, or shares it."""
    if not all(isinstance(table, dict) and isinstance(table.get("name"), str) for table in tables):
        return {}
    named = {table["name"]: {k: v for k, v in table.items() if k != "name"} for table in tables}
    return named if len(named) == len(tables) else {}
