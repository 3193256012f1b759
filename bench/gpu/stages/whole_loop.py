"""The whole loop with the learner on this device: real engine, tool service and learner.

The sampler is scripted, so the policy does not learn. What is shown: groups are sampled with tool
calls, leased, trained on and published, and the samplers' weight version follows.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from bench.gpu.stages import Figures, Scale, machine
from console.machine.ready import accepts, free_ports
from toolwright.process.packaged import packaged

SCRIPT = "toolwright.script"
STEPS = 4
LIMIT_S = 180.0
GRACE_S = 20.0
RECIPE = """
[run]
name = "gpu"
folder = "run"
steps = {steps}
groups_per_step = 4
group_size = 4
max_staleness = 1
correction = "decoupled"
engine = "127.0.0.1:{engine}"

[policy]
model = "policy"

[task]
source = "task.py:questions"
reward = "./task.py:score"
tools = ["shop"]
protocol = "engine.api:Tagged"

[task.limits]
turns = 2
action = 32
response = 128
model = 512

[sampler]
endpoints = ["http://127.0.0.1:{sampler}"]

[tools.shop]
service = "127.0.0.1:{tools}"

[engine]
drain_s = 5.0

[learner]
checkpoint_every = 2

[learner.optimizer]
lr = 1e-4
"""
TASK = """
from itertools import count
from zlib import crc32

from toolsvc import tool
from toolwright.types import Task

CALL, BEFORE, DIGITS, AFTER = {call}, {before}, {digits}, {after}


@tool
def look_up(query: str) -> str:
    "Price of an article."
    return "42"


def questions(seed):
    for number in count():
        yield Task(id=f"q{{number}}", messages=({{"role": "user", "content": f"{{number}}?"}},))


def score(trajectory):
    return float(crc32(trajectory.metadata["final_text"].encode()) % 2)


def reply(request):
    if request.turn == 0:
        return CALL
    number = crc32(request.rid.encode()) % 1000
    return [*BEFORE, *(DIGITS[int(digit)] for digit in f"{{number:03d}}"), *AFTER]
"""


def whole_loop(_scale: Scale) -> Figures:
    """Steps, trajectories, tool calls, and the newest weight version, of a run of four steps."""
    folder = machine.folder() / "loop"
    sampler, tools, engine = free_ports(3)
    _write(folder, sampler=sampler, tools=tools, engine=engine)
    recipe = str(folder / "recipe.toml")
    task = str(folder / "task.py")
    began = time.monotonic()
    with ExitStack() as stack:
        script = f"{task}:reply"
        for port, program in (
            (
                sampler,
                ["bench.cli", "scripted-sampler", "--port", f"{sampler}", "--script", script],
            ),
            (tools, ["toolsvc.cli", "serve", task, "--listen", f"127.0.0.1:{tools}"]),
            (engine, ["engine.cli", "serve", recipe]),
        ):
            process = _start(folder, program)
            stack.callback(_end, process)
            # An engine refuses a first start without its tool service.
            _wait_until_it_listens(folder, process, port)
        learner = _start(folder, ["learner.cli", "run", recipe])
        stack.callback(_end, learner)
        try:
            code = learner.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            code = -1
        if code != 0:
            raise AssertionError(f"the learner ended with status {code}: {_logs(folder)}")
    lines = _lines(folder / "run" / "learner.jsonl")
    if [line["step"] for line in lines] != list(range(1, STEPS + 1)):
        raise AssertionError(f"not {STEPS} steps: {_logs(folder)}")
    return {
        "steps": len(lines),
        "trajectories": sum(line["trajectories"] for line in lines),
        "train_s": [round(line["train_s"], 2) for line in lines],
        "publish_s": [round(line["publish_s"], 2) for line in lines],
        "gradient_norms": [round(line["grad_norm"], 4) for line in lines],
        "seconds": round(time.monotonic() - began, 1),
    }


def _write(folder: Path, **ports: int) -> None:
    starter = packaged("recipes") / "starter"
    folder.mkdir()
    subprocess.run(
        [
            sys.executable,
            "-m",
            "toolwright.script",
            "policy.py",
            "--output",
            str(folder / "policy"),
        ],
        cwd=starter,
        check=True,
        capture_output=True,
        env=_environment(),
    )
    (folder / "recipe.toml").write_text(RECIPE.format(steps=STEPS, **ports), encoding="utf-8")
    tokenizer = Tokenizer.from_file(str(folder / "policy" / "tokenizer.json"))

    def ids(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    task = TASK.format(
        call=ids("<look_up> lamp price</look_up>"),
        before=ids("<answer>"),
        digits=[ids(str(digit))[0] for digit in range(10)],
        after=ids("</answer><|im_end|>"),
    )
    (folder / "task.py").write_text(task, encoding="utf-8")


def _environment() -> dict[str, str]:
    root = Path(__file__).parents[3]
    paths = [str(root), str(root / "proto"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _start(folder: Path, program: list[str]) -> subprocess.Popen[bytes]:
    with (folder / f"{program[0]}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", *program], stdout=log, stderr=log, env=_environment()
        )


def _wait_until_it_listens(folder: Path, process: subprocess.Popen[bytes], port: int) -> None:
    async def listening() -> None:
        async with asyncio.timeout(LIMIT_S):
            await accepts(port)

    try:
        asyncio.run(listening())
    except TimeoutError as error:
        raise AssertionError(f"{process.args!r} does not listen: {_logs(folder)}") from error


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _lines(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _logs(folder: Path) -> str:
    """The last lines of each process."""
    found = []
    for log in sorted(folder.glob("*.log")):
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        found.append(f"{log.stem}: {' / '.join(lines[-3:])}")
    return " | ".join(found)
