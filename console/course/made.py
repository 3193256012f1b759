"""From which settings each thing was made that a run makes first: a file for each maker.

Invariants
- What is there and was made from other settings is used, and said. `--remake` makes it again, with
  all that was made of it.
- Nothing is deleted: what is made again is moved to PATH.old, PATH.old-2, ...
- What was put there by hand has no such file and stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from console.asked.plan import Maker
from console.asked.settings import made_from
from console.asked.setup import Setup
from console.course.half_made import set_aside
from console.errors import NothingStarted
from console.record.changes import differences, listed
from console.record.course import FOLDER

MADE = f"{FOLDER}/made"
LARGEST = 1 << 20
OLD = ".old"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outdated:
    """A thing that is there and was made from other settings. differs: a sentence each."""

    maker: Maker
    differs: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return (
            f"{self.maker.makes} was made by {self.maker.where} with other settings "
            f"({listed(self.differs)}) and is used as it is: `toolwright run --remake` makes it "
            "again"
        )


def note_made(setup: Setup, maker: Maker) -> None:
    """After the maker's run. Raises OSError."""
    file = _file(setup.run, maker)
    file.parent.mkdir(parents=True, exist_ok=True)
    said = {"makes": str(maker.makes), "settings": made_from(setup, maker)}
    file.write_text(json.dumps(said, indent=1), encoding="utf-8")


def outdated(setup: Setup, makers: Sequence[Maker]) -> tuple[Outdated, ...]:
    """In the order of the makers."""
    found = []
    for maker in makers:
        before = _noted(setup.run, maker)
        if not maker.makes.exists() or before is None:
            continue
        if differs := differences(before, made_from(setup, maker)):
            found.append(Outdated(maker=maker, differs=tuple(differs)))
    return tuple(found)


def remake(setup: Setup, makers: Sequence[Maker], steps: int) -> list[str]:
    """Moves what is outdated aside, with what was made of it; a sentence for each. steps: those
    that the run has made. Raises NothingStarted if training has begun, and OSError."""
    old = [one.maker for one in outdated(setup, makers)]
    if old and steps:
        raise NothingStarted(
            f"--remake: {setup.run} has made {steps} steps that began with "
            f"{', '.join(str(maker.makes) for maker in old)}: --folder FOLDER begins a new run"
        )
    gone = {maker.makes for maker in old}
    while more := [
        maker
        for maker in makers
        if maker.makes not in gone and any(need.path in gone for need in maker.needs)
    ]:
        gone |= {maker.makes for maker in more}
    said = []
    for maker in makers:
        if maker.makes not in gone:
            continue
        _file(setup.run, maker).unlink(missing_ok=True)
        paths = [maker.makes]
        if maker.kind == "sft":
            paths.append(setup.run / "sft")  # its checkpoints belong to the old settings
        said += [
            f"{path} is made again: the old one is {set_aside(path, OLD)}"
            for path in paths
            if path.exists()
        ]
    return said


def _file(run: Path, maker: Maker) -> Path:
    return run / MADE / f"{maker.kind}-{maker.name.replace('/', '_')}.json"


def _noted(run: Path, maker: Maker) -> dict[str, str] | None:
    """None for what this run did not make, and for a file that is not ours."""
    try:
        with _file(run, maker).open("rb") as file:
            found = json.loads(file.read(LARGEST))
        if found["makes"] != str(maker.makes):
            return None
        return {str(name): str(value) for name, value in found["settings"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
