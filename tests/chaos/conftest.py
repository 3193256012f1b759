"""Real engine and learner processes around a scripted sampler; whatever is started is ended."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.net import free_port
from tests.support.recipes import to_toml

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
PATIENCE = 150.0
"""Seconds for what takes a few on an idle machine."""

FULL = os.environ.get("CHAOS") == "full"
"""The whole of it: minutes of real outages, twenty kills a test."""

FILES = """
from zlib import crc32

from toolsvc import tool
from toolwright.types import Task


@tool
def python(code: str) -> str:
    return "42"


def questions(seed):
    number = 0
    while True:
        yield Task(id=f"q{number}", messages=({"role": "user", "content": f"{number}?"},))
        number += 1


def score(trajectory):
    return float(crc32(trajectory.metadata["final_text"].encode()) % 2)


def reply(request):
    if request.turn == 0:
        return CALL
    number = crc32(f"{request.rid}".encode()) % 1000
    return [ANSWER[0], *(DIGITS[int(d)] for d in f"{number:03d}"), *ANSWER[1:]]
"""


@dataclass(slots=True)
class Run:
    """One run folder, its services, and the processes of the moment."""

    folder: Path
    recipe: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    """Of all processes, beside this one's."""
    patience: float = PATIENCE

    def start(
        self, program: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Starts one of the product's commands in a process group of its own.

        environment: variables of this process alone."""
        log = self.folder / f"{program}.log"
        process = subprocess.Popen(
            [str(BIN / program), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "TORCH_COMPILE_DISABLE": "1",
                **self.environment,
                **(environment or {}),
            },
        )
        # A limit on the size of the process's files must not cut its log.
        threading.Thread(target=_copy, args=(process, log), daemon=True).start()
        self.processes.append(process)
        return process

    def engine(self) -> subprocess.Popen[bytes]:
        return self.start("engine", "serve", str(self.recipe))

    def learner(self) -> subprocess.Popen[bytes]:
        return self.start("learner", "run", str(self.recipe))

    def step(self) -> int:
        """The newest step that the learner wrote down."""
        file = self.folder / "run" / "learner.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return int(json.loads(lines[-1])["step"]) if lines else 0

    def metrics(self) -> list[dict[str, Any]]:
        lines = (self.folder / "run" / "learner.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits; the logs are in the failure's message."""
        deadline = time.monotonic() + self.patience
        while not condition():
            assert time.monotonic() < deadline, f"no {what}\n{self.logs()}"
            time.sleep(0.05)

    def ended(self, process: subprocess.Popen[bytes]) -> None:
        """Waits for a clean end."""
        try:
            code = process.wait(self.patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running\n{self.logs()}") from None
        assert code == 0, f"exit code {code}\n{self.logs()}"

    def ledger(self) -> list[dict[str, Any]]:
        """Entries of all checkpoints, in order of consumption; each has those since the last."""
        entries: list[dict[str, Any]] = []
        for path in sorted((self.folder / "run" / "checkpoints").glob("step-*")):
            head, *rest = map(
                json.loads, (path / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
            )
            assert head["settled"] == len(entries)
            entries += rest
        return entries

    def journal(self) -> dict[int, tuple[str, str, bool]]:
        """Sequence number to (group, hash, dropped); the engine must not run."""
        with closing(sqlite3.connect(self.folder / "run" / "journal.sqlite")) as db:
            rows = db.execute("SELECT sequence, id, hash, dropped FROM groups").fetchall()
        return {number: (group, digest, bool(dropped)) for number, group, digest, dropped in rows}

    def logs(self) -> str:
        return "\n".join(
            f"--- {log.name}\n"
            + "\n".join(log.read_text(errors="replace", encoding="utf-8").splitlines()[-15:])
            for log in sorted(self.folder.glob("*.log"))
        )


def _copy(process: subprocess.Popen[bytes], log: Path) -> None:
    assert process.stdout is not None
    with process.stdout as said, log.open("ab", buffering=0) as file:
        while piece := os.read(said.fileno(), 65_536):
            file.write(piece)


def kill(process: subprocess.Popen[bytes]) -> None:
    """What an out-of-memory killer does."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """A policy, a scripted sampler and a tool service; the test starts engine and learner."""
    policy = tmp_path / "policy"
    script = ROOT / "recipes/calculator/policy.py"
    subprocess.run(
        [sys.executable, "-m", "toolwright.script", str(script), "--output", str(policy)],
        check=True,
    )
    (tmp_path / "task.py").write_text(_with_ids(FILES, policy), encoding="utf-8")
    sampler, tools, port = free_port(), free_port(), free_port()
    tables: dict[str, Any] = {
        "run": {
            "name": "chaos",
            "folder": "run",
            "steps": 8,
            "groups_per_step": 2,
            "group_size": 4,
            "max_staleness": 1,
            "correction": "decoupled",
            "engine": f"127.0.0.1:{port}",
        },
        "policy": {"model": "policy"},
        "task": {
            "source": "task.py:questions",
            "reward": "./task.py:score",
            "limits": {"turns": 2, "action": 32, "response": 128, "model": 512},
        },
        "sampler": {"endpoints": [f"http://127.0.0.1:{sampler}"]},
        "tools": {"python": {"service": f"127.0.0.1:{tools}"}},
        "engine": {"drain_s": 5.0},
        "learner": {"checkpoint_every": 3, "keep_checkpoints": 99, "optimizer": {"lr": 1e-4}},
    }
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(to_toml(tables), encoding="utf-8")
    made = Run(folder=tmp_path, recipe=recipe)
    try:
        made.start(
            "bench", "scripted-sampler", "--port", str(sampler), "--script",
            f"{tmp_path / 'task.py'}:reply", "--tokens-per-second", "100",
        )  # fmt: skip
        made.start("toolsvc", "serve", str(tmp_path / "task.py"), "--listen", f"127.0.0.1:{tools}")
        made.until(lambda: listens(sampler) and listens(tools), "sampler and tools")
        yield made
    finally:
        for process in made.processes:
            kill(process)


def _with_ids(text: str, policy: Path) -> str:
    from engine.core.text.codec import HuggingFaceCodec

    codec = HuggingFaceCodec(policy)
    call = codec.encode("<python> 6*7</python>")
    answer = [*codec.encode("<answer>"), *codec.encode("</answer><|im_end|>")]
    digits = [codec.encode(str(digit))[0] for digit in range(10)]
    return f"CALL, ANSWER, DIGITS = {call}, {answer}, {digits}\n{text}"


def listens(port: int) -> bool:
    """Whether a server accepts connections at the port."""
    import socket

    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of many minutes are left out unless they are asked for."""
    if FULL:
        return
    long = [item for item in items if item.get_closest_marker("only_in_full")]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if item not in long]
