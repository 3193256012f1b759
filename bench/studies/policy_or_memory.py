"""Policy or memory: what holds what was learnt? SEARL's policies, each with several memories.

A cell is a policy of a run, as it was after some steps, with one memory: nothing recommended, the
memory of the same step, the run's last one, another run's last one, or the run's last one with the
code of its tools shuffled. All cells answer the same held-out questions, greedily.
Cells that the runs' own evaluations have are read from there.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from bench.measuring.servers import program, serving
from bench.studies.drawing import lines_over
from bench.studies.tables import cell, markdown, over_seeds
from bench.studies.types import Figures, Study
from console.course.commands import SGLANG
from console.machine import sampler_home
from console.machine.processes import Command, Processes
from console.machine.ready import free_ports, until_serves
from toolwright.process.packaged import packaged

RECIPE = "searl/recipe.toml"
STEPS = (0, 5, 15, 45)
"""Training steps of the policies; 0 is the policy before training."""
LAST = 45
"""Training step whose memory is the last."""
QUESTIONS = 128
MEMORIES = {
    "none": "none",
    "own": "the run's, of the policy's step",
    "last": "the run's last",
    "other": "another seed's last",
    "shuffled": "the run's last, codes shuffled",
}
"""Rows of the table, by the names of their suites."""
OWN_SUITES = {"without-memory-greedy": "none", "heldout-greedy": "own"}
"""Cells of the run's own evaluations, which ask the same questions."""
CELLS = "policy-or-memory"
"""Folder of the cells, beside the runs."""
READY_S = 300.0
READY = 8
"""Boxes that wait for calls, of each evaluation: three run at once."""


def measure(folders: Mapping[int, Path]) -> Figures:
    """Shares of right answers by seed, step and memory. Finished cells are read from their folder,
    `policy-or-memory` beside the runs."""
    rows = []
    for seed, folder in folders.items():
        others = [one for one in folders if one != seed]
        other = folders[min(others, key=lambda one: (one < seed, one))] if others else None
        home = folder.parent / CELLS / folder.name
        home.mkdir(parents=True, exist_ok=True)
        asyncio.run(_evaluate(folder, other, home))
        found = cells(folder, home)
        rows += [
            {"seed": seed, "step": step, "memory": memory, **found[step, memory]}
            for step in STEPS
            for memory in MEMORIES
            if (step, memory) in found
        ]
    return {"study": STUDY.name, "seeds": list(folders), "rows": rows}


def shuffled(exported: Mapping[str, Any]) -> dict[str, Any]:
    """An exported memory in which each tool has the body of the next one, in the order of their
    names."""
    tools = sorted(exported["tools"], key=lambda tool: str(tool["name"]))
    bodies = [str(tool["code"]).partition("\n")[2] for tool in tools]
    changed = [
        {**tool, "code": f"{str(tool['code']).partition(chr(10))[0]}\n{body}"}
        for tool, body in zip(tools, (*bodies[1:], *bodies[:1]), strict=True)
    ]
    return {**exported, "tools": changed}


def versions(store: Path) -> dict[int, int]:
    """Version of the memory by training step, for each iteration of its run."""
    with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as opened:
        rows = opened.execute("select version, name from changes").fetchall()
    matches = [(version, re.search(r"/iteration (\d+)$", name)) for version, name in rows]
    return {int(match[1]): version for version, match in matches if match}


async def _evaluate(folder: Path, other: Path | None, home: Path) -> None:
    """All cells of one run that are not there yet."""
    own = versions(folder / "memory/memory.sqlite")
    missing = [step for step in STEPS if list(_missing(folder, home, step, own))]
    if not missing:
        return
    # A folder of its own: an earlier log names an earlier server's address.
    logs = Path(mkdtemp(prefix="logs-", dir=home))
    async with Processes(logs) as processes:
        stores = await _stores(processes, folder, other, home)
        addresses = {
            name: (
                await serving(
                    processes,
                    program(
                        f"memory-{name}", "memory", "serve", "--store", str(store),
                        "--listen", "127.0.0.1:0",
                    ),
                )
            )[1]
            for name, store in stores.items()
        }  # fmt: skip
        for step in missing:
            await _cells(processes, folder, home, step, addresses)


async def _stores(
    processes: Processes, folder: Path, other: Path | None, home: Path
) -> dict[str, Path]:
    """Stores of the memories that the servers use, by name: own, other, shuffled."""
    sources = {"own": folder} | ({} if other is None else {"other": other})
    stores = {name: home / f"{name}.sqlite" for name in (*sources, "shuffled")}
    for name, run in sources.items():
        if not stores[name].exists():
            copied = run / "memory/memory.sqlite"
            await _done(processes, "memory", "copy", str(copied), str(stores[name]))
    if not stores["shuffled"].exists():
        await _done(processes, "memory", "export", str(stores["own"]), str(home / "exported"))
        file = home / "exported/memory.json"
        exported = json.loads(file.read_text(encoding="utf-8"))
        mixed = home / "shuffled.json"
        mixed.write_text(json.dumps(shuffled(exported)), encoding="utf-8")
        await _done(processes, "memory", "import", str(mixed), str(stores["shuffled"]))
    return stores


async def _cells(
    processes: Processes, folder: Path, home: Path, step: int, addresses: Mapping[str, str]
) -> None:
    """The cells of one policy: its sampler, then an evaluation by each memory."""
    model = folder / "warm" if step == 0 else next((folder / "policy").glob(f"*-{step}"))
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    serve = packaged("deploy/sglang-cpu") / "serve.py"
    sampler = await processes.start(
        Command(
            name=f"sampler-{step}",
            argv=(sys.executable, str(serve), str(model), str(port), "--skip-tokenizer-init"),
            environment={SGLANG: str(sampler_home.find() or os.environ.get(SGLANG, ""))},
        )
    )
    await processes.while_alive(
        processes.until_ready(sampler, until_serves(f"{url}/health"), READY_S)
    )
    own = versions(folder / "memory/memory.sqlite")
    missing = list(_missing(folder, home, step, own))
    evaluations = []
    for name, address in addresses.items():
        suites = [
            f'{{name="{memory}", source="./market/task.py:heldout", seed=11, n={QUESTIONS}, '
            f"temperature=0.0, metadata={{{metadata}}}}}"
            for memory, answers, metadata in missing
            if answers == name
        ]
        settings = (
            f'policy.model="{model}"', f'run.folder="{home / name}"', "task.metadata={}",
            f'memory.address="{address}"', f"engine.evaluation.suites=[{', '.join(suites)}]",
            f'tools.market.serve=["create_and_execute","memory:{address}","--ready","{READY}"]',
        )  # fmt: skip
        words = [word for setting in settings for word in ("--set", setting)]
        if suites:
            evaluates = program(
                f"eval-{step}-{name}", "engine", "eval", "run", str(packaged("recipes") / RECIPE),
                "--endpoint", url, "--output", str(home / f"step-{step}/{name}"), "--fresh", *words,
            )  # fmt: skip
            evaluations.append(processes.run(evaluates))
    await asyncio.gather(*evaluations)
    await processes.stop(sampler)


def _missing(
    folder: Path, home: Path, step: int, own: Mapping[int, int]
) -> Iterator[tuple[str, str, str]]:
    """(memory, the store that answers, the questions' metadata as TOML) of cells to evaluate."""
    last = max(own)
    ways = {
        "none": ("own", 'memory="none"'),
        "own": ("own", f"memory_version={own[step]}"),
        "last": ("own", f"memory_version={own[last]}"),
        "other": ("other", ""),
        "shuffled": ("shuffled", ""),
    }
    found = cells(folder, home)
    for memory, (store, metadata) in ways.items():
        if (step, memory) not in found and not (memory == "last" and step == last):
            yield memory, store, metadata


def cells(folder: Path, home: Path) -> dict[tuple[int, str], dict[str, Any]]:
    """Finished cells by step and memory: those of the run's own evaluations, and those below
    `home`."""
    found = {}
    lines = (folder / "evaluations.jsonl").read_text(encoding="utf-8").splitlines()
    for row in map(json.loads, lines):
        if row["suite"] in OWN_SUITES and row["step"] in STEPS:
            place = row["step"], OWN_SUITES[row["suite"]]
            found[place] = {"right": row["reward"], "error": row["stderr"], "n": row["n"]}
    for file in home.glob("step-*/*/results.json"):
        step = int(file.parent.parent.name.removeprefix("step-"))
        results = json.loads(file.read_text(encoding="utf-8"))
        for row in results["suites"] if results["complete"] else ():
            found[step, row["name"]] = {
                "right": row["score"], "error": row["standard_error"], "n": row["n"]
            }  # fmt: skip
    if (LAST, "own") in found:
        found[LAST, "last"] = found[LAST, "own"]
    return found


async def _done(processes: Processes, *argv: str) -> None:
    """Runs a program to its end. Raises ProcessFailed if it fails."""
    await processes.run(program("-".join(argv[:2]), *argv))


def table(figures: Figures) -> str:
    """Shares of right answers and number of seeds: a row a memory, a column a policy."""
    lines = [
        [title, *(_counted(*_of(figures, memory, step)) for step in STEPS)]
        for memory, title in MEMORIES.items()
    ]
    return markdown(["memory", *(f"policy of step {step}" for step in STEPS)], lines)


def _counted(values: Sequence[float], errors: Sequence[float]) -> str:
    return f"{cell(values, errors)} ({len(values)})" if values else "-"


def picture(figures: Figures) -> str:
    """Shares over the steps of the policies, one line a memory."""
    return lines_over(
        [str(step) for step in STEPS],
        {
            title: [over_seeds(*_of(figures, memory, step)) for step in STEPS]
            for memory, title in MEMORIES.items()
        },
        x_name="training step of the policy",
        y_name="share of right answers",
    )


def _of(figures: Figures, memory: str, step: int) -> tuple[Sequence[float], Sequence[float]]:
    """(shares, their errors) of all seeds."""
    rows = [row for row in figures["rows"] if (row["memory"], row["step"]) == (memory, step)]
    return [row["right"] for row in rows], [row["error"] for row in rows]


STUDY = Study(
    name="policy-or-memory",
    question="Policy or memory: what holds what was learnt?",
    recipe=RECIPE,
    settings=('engine.history="all"',),
    measure=measure,
    table=table,
    picture=picture,
)
