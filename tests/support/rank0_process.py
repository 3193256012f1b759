"""A learner that publishes over a group of processes, as a real SGLang meets it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import safe_open

from tests.support.broadcasts import Publish
from tests.support.engines import Running
from toolwright.policy.v1 import policy_pb2
from toolwright.types import WeightVersion

PROGRAM = Path(__file__).with_name("rank0.py")


@dataclass(slots=True, kw_only=True)
class Rank0Process:
    """The learner's side of a group, in a process of its own that can be killed, and its publish.

    shapes: those of the tensors that it has, by name.
    """

    publish: Publish = field(init=False)
    process: asyncio.subprocess.Process
    port: int
    shapes: dict[str, list[int]]

    async def tell(self, **asked: Any) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(asked).encode() + b"\n")
        answer = await self.process.stdout.readline()
        assert json.loads(answer) == {"done": asked}

    async def join(self, version: WeightVersion) -> None:
        """The group stands."""
        await self.publish.begin(version)
        await self.tell(join=self.publish.id, world_size=self.publish.world_size)

    async def ask(self, index: int, names: Sequence[str]) -> None:
        """PublishBucket alone."""
        tensors = [
            policy_pb2.TensorMeta(name=name, dtype="float32", shape=self.shapes[name])
            for name in names
        ]
        await self.publish.ask(index, tensors)

    async def bucket(self, index: int, names: Sequence[str]) -> None:
        await asyncio.gather(self.ask(index, names), self.tell(broadcast=list(names)))


@asynccontextmanager
async def rank0(run: Running, weights: Path) -> AsyncIterator[Rank0Process]:
    file = weights / "model.safetensors"
    with safe_open(file, "np") as tensors:
        shapes = {name: list(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(PROGRAM), str(file)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        told = json.loads(await process.stdout.readline())
        root = Rank0Process(process=process, port=told["port"], shapes=shapes)
        root.publish = Publish(learner=run.learner, root=root)
        yield root
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
