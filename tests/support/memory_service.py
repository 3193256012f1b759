"""A real `memory serve` of its own process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from toolwright.memory.v1 import memory_pb2 as pb


@dataclass
class MemoryProcess:
    """`memory serve` that listens at `address`; `kill` ends it as a power cut would."""

    process: subprocess.Popen[str]
    address: str
    said: str

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)


@contextmanager
def memory_process(
    store: str | Path, *words: str, address: str = "127.0.0.1:0"
) -> Iterator[MemoryProcess]:
    command = [
        sys.executable,
        "-m",
        "memory.cli",
        "serve",
        "--store",
        str(store),
        "--listen",
        address,
    ]
    process = subprocess.Popen([*command, *words], stdout=subprocess.PIPE, text=True)
    try:
        said = process.stdout.readline()
        assert said, f"memory serve ended with {process.wait(10)}"
        yield MemoryProcess(process=process, address=said.rstrip().rpartition(" ")[2], said=said)
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


def made(name: str, description: str, code: str = "", **fields: object) -> pb.ToolNode:
    """A candidate of one integer argument."""
    code = code or f"def {name}(n):\n    return n"
    out = pb.ToolNode(name=name, description=description, code=code, inputs=['{"n": 1}'], **fields)
    out.arguments_schema.update({"type": "object", "properties": {"n": {"type": "integer"}}})
    return out


def group(
    key: str, *rollouts: list[pb.ToolNode], registers: int | None = 0
) -> pb.MergeGroupRequest:
    """A group whose rollouts t0, t1, ... made these tools."""
    return pb.MergeGroupRequest(
        group=key,
        step=1,
        rollouts=[
            pb.RolloutTools(trajectory_id=f"t{number}", candidates=candidates)
            for number, candidates in enumerate(rollouts)
        ],
        registers="" if registers is None else f"t{registers}",
    )
