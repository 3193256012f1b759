"""`bench view`: how quickly `toolwright view --web` answers over a run of many trajectories.

The run is made here: groups of eight in a journal as the engine writes it, each trajectory with
three actions and two calls, their words drawn as those of a language are (a few often, most seldom)
from a vocabulary with its tokenizer. The server is the command itself in a process of its own, and
is asked by HTTP from outside, one question at a time.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any
from urllib.parse import urlencode

import numpy as np
import psutil
import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from bench.errors import BenchError
from engine.journal import facts, groups
from engine.journal.schema import FILE_NAME, open_database
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.common.v1 import trajectory_pb2 as pb
from toolwright.model_folder import tokenizer_hash
from toolwright.types import WeightVersion

WORDS = 20_000
GROUP = 8
GROUPS_A_STEP = 16
GROUPS_A_COMMIT = 64
ACTION, ANSWER = 60, 120
"""Words of one."""
SEED = 1
TRIES = 7
QUESTIONS = {
    "first page": {},
    "by reward": {"sort": "reward"},
    "one tool, by time": {"tool": "search", "sort": "seconds"},
    "a seldom word": {"text": "word19000"},
    "a word of every row": {"text": "word0", "sort": "reward"},
    "a phrase in answers": {"text": '"word1 word0"', "within": "read"},
    "the beginning of a word": {"text": "word19*"},
    "nothing found": {"text": "zebra"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question. cold, warm: seconds of the first answer, and the median of the others."""

    name: str
    found: int
    cold: float
    warm: float


def view(
    trajectories: Annotated[int, typer.Option(min=GROUP, help="Rows of the table.")] = 100_000,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the figures there.")
    ] = None,
) -> None:
    """Measure `toolwright view --web`: reading a run, pages, searches, memory.

    Makes a run in a temporary folder (about 6 KB a trajectory), lets the command read it, and asks.
    """
    with tempfile.TemporaryDirectory(prefix="bench-view-") as home:
        try:
            figures = measure(Path(home), trajectories)
        except (BenchError, OSError) as error:
            typer.echo(f"bench: {error}", err=True)
            raise typer.Exit(1) from error
    Console(width=None if sys.stdout.isatty() else 100).print(_table(figures["questions"]))
    for name in ("rows", "read_s", "journal_mib", "index_mib", "peak_mib"):
        print(f"{name:12} {figures[name]:,.0f}")
    if json_file is not None:
        json_file.write_text(json.dumps(figures, indent=1) + "\n")


def measure(home: Path, trajectories: int) -> dict[str, Any]:
    """Figures of a run of so many trajectories, made below `home`."""
    run = home / "run"
    make_run(run, trajectories)
    with _served(run, home) as (process, address):
        began = time.perf_counter()
        state = _whole(address)
        read_s = time.perf_counter() - began
        asked = [_ask(address, name, question) for name, question in QUESTIONS.items()]
        one = _get(address, "rows", {"run": "run"})["rows"][0]["name"]
        begun = time.perf_counter()
        _get(address, "trajectory", {"run": "run", "name": one})
        asked.append(
            Asked(name="one trajectory", found=1, cold=time.perf_counter() - begun, warm=0)
        )
        peak = _peak_bytes(process.pid)
    index = sum(file.stat().st_size for file in (home / "toolwright" / "view").iterdir())
    return {
        "rows": state["rows"],
        "read_s": read_s,
        "journal_mib": (run / FILE_NAME).stat().st_size / 2**20,
        "index_mib": index / 2**20,
        "peak_mib": peak / 2**20,
        "questions": [
            {"name": a.name, "found": a.found, "cold_s": a.cold, "warm_s": a.warm} for a in asked
        ],
    }


def make_run(run: Path, trajectories: int) -> None:
    """A run folder whose journal holds so many trajectories, in whole groups."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    final = run / "final"
    final.mkdir(parents=True)
    vocabulary = {f"word{number}": number for number in range(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="word0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(final / "tokenizer.json"))
    (run / "engine.jsonl").touch()
    chance = np.random.default_rng(SEED)
    digest = tokenizer_hash(final)
    db = open_database(run / FILE_NAME)
    facts.set_fact(db, "owner", "bench")
    count = trajectories // GROUP
    for first in range(0, count, GROUPS_A_COMMIT):
        db.execute("BEGIN")
        for number in range(first, min(first + GROUPS_A_COMMIT, count)):
            version = WeightVersion(lineage="bench", step=number // GROUPS_A_STEP)
            members = [_member(chance, number, i, version, digest) for i in range(GROUP)]
            groups.add(
                db,
                position=number,
                identity=f"g{number:07}",
                members=members,
                attempts=[f"g{number:07}-{i}/a" for i in range(GROUP)],
                versions=[version],
            )
        db.execute("COMMIT")
    db.close()


def _member(
    chance: np.random.Generator, number: int, index: int, version: WeightVersion, digest: str
) -> bytes:
    name = f"g{number:07}-{index}"
    message = pb.Trajectory(
        id=name,
        group_id=f"g{number:07}",
        index=index,
        task=pb.Task(id=f"task-{number}", prompt=f"question {number} of word{number % WORDS}"),
        reward=float(chance.random()),
        status=pb.TRAJECTORY_STATUS_COMPLETED,
        stop_reason=(reasons.STOP_REASON_ANSWERED if index % 5 else reasons.STOP_REASON_MAX_TURNS),
        timings=pb.TrajectoryTimings(wall_s=float(chance.exponential(3.0))),
        tokenizer_hash=digest,
    )
    sequence = message.sequences.add(id=f"{name}.0")
    for turn in range(3):
        words = _words(chance, ACTION)
        sequence.segments.add(
            author=pb.AUTHOR_MODEL,
            token_ids=words.tobytes(),
            token_count=ACTION,
            logprobs=(-chance.exponential(0.3, ACTION)).astype("<f4").tobytes(),
            weight_version=pb.WeightVersion(lineage=version.lineage, step=version.step),
            turn=turn,
            trainable=True,
        )
        if turn == 2:
            break
        answer = _words(chance, ANSWER)
        sequence.segments.add(
            author=pb.AUTHOR_TOOL, token_ids=answer.tobytes(), token_count=ANSWER, turn=turn
        )
        message.calls.add(
            call_id=f"{name}/a/{turn}/0",
            turn=turn,
            tool=("search", "python", "bash")[(index + turn) % 3],
            action=_text(words),
            observation=_text(answer),
            valid=True,
        )
    return message.SerializeToString()


def _words(chance: np.random.Generator, count: int) -> Any:
    """Ids of words, the first ones often."""
    return (np.minimum(chance.zipf(1.3, count), WORDS) - 1).astype("<i4")


def _text(words: Any) -> str:
    return " ".join(f"word{word}" for word in words)


@contextmanager
def _served(run: Path, cache: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "console.cli", "view", "--web", str(run)]
    variables = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    variables.pop("TOOLWRIGHT_TOKEN", None)
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True, env=variables
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if (found := re.search(r"http://\S+/", line)) is None:
            raise BenchError(f"`toolwright view --web` did not begin: {line.strip() or 'no word'}")
        yield process, found[0]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _whole(address: str) -> Any:
    """The run's state, once all of it was read."""
    while True:
        (state,) = _get(address, "runs", {})["runs"]
        if state["whole"]:
            return state
        time.sleep(0.2)


def _ask(address: str, name: str, question: dict[str, str]) -> Asked:
    seconds, found = [], 0
    for _ in range(TRIES):
        began = time.perf_counter()
        answer = _get(address, "rows", {"run": "run", **question})
        seconds.append(time.perf_counter() - began)
        found = answer["total"]
    return Asked(name=name, found=found, cold=seconds[0], warm=median(seconds[1:]))


def _get(address: str, what: str, asked: dict[str, str]) -> Any:
    with urllib.request.urlopen(f"{address}api/{what}?{urlencode(asked)}", timeout=600) as answer:
        return json.load(answer)


def _peak_bytes(pid: int) -> int:
    """The most memory that the process has held."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else int(psutil.Process(pid).memory_info().rss)


def _table(rows: list[dict[str, Any]]) -> Table:
    out = Table(title="seconds of an answer", box=SIMPLE)
    for name in ("question", "rows found", "first time", "again"):
        out.add_column(name, justify="left" if name == "question" else "right")
    for row in rows:
        again = f"{row['warm_s']:.3f}" if row["warm_s"] else ""
        out.add_row(row["name"], f"{row['found']:,}", f"{row['cold_s']:.3f}", again)
    return out
