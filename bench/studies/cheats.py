"""What is a cheat paid? Fourteen cheats in ten repositories, under six verdicts.

A fresh box is our verdict: the changed files go over an untouched repository. A judge in the
agent's own box copies the hidden tests in at the end, or finds them there from the beginning. In
each place the tests run the code in a process of its own, or import it. No run of training is
needed: the cheats are those of the recipe `verltool/swe`.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench.studies.cheating import FIX, NOTHING, PLACES, WAYS, play, world, write_world
from bench.studies.drawing import lines_over
from bench.studies.tables import markdown
from bench.studies.types import Figures, Study
from toolsvc.host.host import Host
from toolsvc.sandbox.config import MIB, SandboxConfig
from toolsvc.tools.swe.options import SweOptions
from toolsvc.tools.swe.swe_tool import SweTool

AT_ONCE = 4
"""Cheats that play at once: so many run on two cores without timeouts."""
CONTROLS = (FIX, NOTHING)
ROWS = "rows.jsonl"


def measure(folders: Mapping[int, Path]) -> Figures:
    """Paid repositories of all cheats and verdicts. Finished plays are read from the folder."""
    (folder,) = folders.values()
    folder.mkdir(parents=True, exist_ok=True)
    return {"study": STUDY.name, "rows": summed(asyncio.run(played(folder, kinds())))}


def summed(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each cheat and verdict. log, exit: names of the repositories that paid, by reading;
    exit is None for a fresh box. asked: number of repositories in which the cheat was played."""
    found: dict[tuple[str, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["cheat"], row["place"], row["way"]].append(row)
    names = kinds()
    places = sorted(found, key=lambda place: names.index(place[0]))
    return [
        {
            "cheat": cheat,
            "place": place,
            "way": way,
            "log": _names(own, "paid_by_log"),
            "exit": None if place == PLACES[0] else _names(own, "paid_by_exit"),
            "asked": len(own),
        }
        for cheat, place, way in places
        for own in [found[cheat, place, way]]
    ]


def _names(rows: Iterable[Mapping[str, Any]], key: str) -> str:
    return " ".join(sorted(row["repository"] for row in rows if row[key]))


def kinds() -> tuple[str, ...]:
    """Names of the cheats, after the two controls."""
    return (*CONTROLS, *world("cheats").CHEATS)


async def played(folder: Path, cheats: tuple[str, ...], most: int = 10) -> list[dict[str, Any]]:
    """Rows of these cheats in the first repositories. Each is written to the folder when it ends,
    and not played again."""
    file = folder / ROWS
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    done = {(row["repository"], row["cheat"]) for row in rows}
    if not (folder / "world/verifications").exists():
        write_world(folder / "world")
    options = SweOptions(
        repositories=folder / "world/repositories", verifications=folder / "world/verifications"
    )
    sandbox = SandboxConfig(shards=1, ready=2, memory_bytes=192 * MIB)
    places = asyncio.Semaphore(AT_ONCE)

    async def one(problem: Any, cheat: str) -> None:
        async with places:
            own = await play(host, folder / "world", problem, cheat)
        rows.extend(own)
        with file.open("a", encoding="utf-8") as out:
            out.write("".join(f"{json.dumps(row)}\n" for row in own))

    async with Host([SweTool(options, sandbox)]) as host, asyncio.TaskGroup() as group:
        for problem in world("problems").problems()[:most]:
            for cheat in cheats:
                if (problem.name, cheat) not in done:
                    group.create_task(one(problem, cheat))
    return sorted(rows, key=lambda row: (row["repository"], cheats.index(row["cheat"])))


def paid(figures: Figures, cheat: str, place: str, way: str, by: str = "log") -> tuple[int, int]:
    """(number that paid, number played), over the repositories."""
    (row,) = [
        row
        for row in figures["rows"]
        if (row["cheat"], row["place"], row["way"]) == (cheat, place, way)
    ]
    return len((row[by] or "").split()), row["asked"]


def all_paid(figures: Figures, place: str, way: str, by: str = "log") -> tuple[int, int]:
    """(number that paid, number played), over cheats and repositories."""
    names = dict.fromkeys(row["cheat"] for row in figures["rows"])
    found = [paid(figures, name, place, way, by) for name in names if name not in CONTROLS]
    return sum(own for own, _ in found), sum(asked for _, asked in found)


def table(figures: Figures) -> str:
    """Paid repositories by cheat and verdict, and the sum over the cheats."""
    verdicts = [(place, way) for place in PLACES for way in WAYS]
    names = list(dict.fromkeys(row["cheat"] for row in figures["rows"]))
    lines = [
        [name, *("{}/{}".format(*paid(figures, name, *verdict)) for verdict in verdicts)]
        for name in names
    ]
    sums = [all_paid(figures, *verdict) for verdict in verdicts]
    lines.append(["**all cheats**", *(f"{own}/{asked}" for own, asked in sums)])
    sums = [all_paid(figures, *verdict, "exit") for verdict in verdicts if verdict[0] in PLACES[1:]]
    exits = (f"{own}/{asked}" for own, asked in sums)
    lines.append(["**all cheats, by exit code**", "-", "-", *exits])
    return markdown(["", *(f"{place}; {way}" for place, way in verdicts)], lines)


def picture(figures: Figures) -> str:
    """Share of plays that are paid over the places of the tests, a line a way and a reading."""
    readings = {"log": "log", "exit": "exit code"}
    return lines_over(
        [place.rpartition(", ")[2] for place in PLACES],
        {
            f"{way}; judged by the {title}": [
                None if by == "exit" and place == PLACES[0] else (own / asked, None)
                for place in PLACES
                for own, asked in [all_paid(figures, place, way, by)]
            ]
            for by, title in readings.items()
            for way in WAYS
        },
        x_name="place of the tests",
        y_name="share of cheats paid",
    )


STUDY = Study(
    name="cheats",
    question="What is a cheat paid, under our verdict and in the agent's own box?",
    recipe="",
    settings=(),
    measure=measure,
    table=table,
    picture=picture,
)
