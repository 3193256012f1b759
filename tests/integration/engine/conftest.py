"""One small world a test: a scripted sampler, a tool service, a recipe, and the engine."""

from __future__ import annotations

import io
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from bench.scripted import Faults, Script, ScriptedSampler, Timing
from engine.core.text.codec import HuggingFaceCodec
from engine.serving.seams import Seams
from tests.integration.toolsvc.conftest import Service, start_service
from tests.support.dialogue import ANSWER, CALL, by_turn
from tests.support.engines import Leased, Running, running
from tests.support.net import free_port
from tests.support.policy import write_vision_policy
from tests.support.recipes import merged, recipe_tables, write_recipe
from tests.support.shown_images import LIMITS, SIDE, replying
from tests.support.tools import ToolDouble, serving
from tests.support.waiting import until
from tests.support.weights import write_weights
from toolwright.types import Trajectory


@pytest.fixture(scope="session")
def codec(policy_folder: Path) -> HuggingFaceCodec:
    return HuggingFaceCodec(policy_folder)


@pytest.fixture(scope="session")
def vision(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a policy that reads images."""
    return write_vision_policy(tmp_path_factory.mktemp("vision"))


@dataclass(slots=True, kw_only=True)
class World:
    """Sampler and tool service are up; `engine()` starts the engine on the recipe."""

    sampler: ScriptedSampler
    tools: ToolDouble
    tables: dict[str, Any]
    folder: Path
    codec: HuggingFaceCodec

    def engine(
        self, *overrides: str, workers: int = 0, seams: Seams | None = None, **changes: Any
    ) -> AbstractAsyncContextManager[Running]:
        """The engine on the world's recipe with `changes`; a second one resumes the run."""
        file = write_recipe(self.folder, merged(self.tables, changes))
        return running(file, *overrides, workers=workers, seams=seams)

    async def group(self, *overrides: str, **changes: Any) -> Leased:
        """The first group of an engine, which then closes its sessions and ends."""
        async with self.engine(*overrides, **changes) as run:
            (group,) = await run.learner.lease(run.version)
            await until(lambda: not self.tools.live, "the sessions' end")
        return group

    async def trajectory(self, *overrides: str, **changes: Any) -> Trajectory:
        """The only member of that group."""
        (trajectory,) = (await self.group(*overrides, **changes)).members
        return trajectory

    def rewards(self, *body: str, before: str = "") -> None:
        """The reward function `score(trajectory)`; before: what its file begins with."""
        lines = [before, "import asyncio", "async def score(trajectory):"]
        text = "\n".join([*lines, *(f"    {line}" for line in body)])
        (self.folder / "my_reward.py").write_text(text + "\n", encoding="utf-8")

    def weights(self, name: str) -> Path:
        """A folder that samplers can load."""
        return write_weights(self.folder / "weights" / name)

    def texts(self, trajectory: Any) -> list[tuple[str, str]]:
        """(author, text) of each segment."""
        return [
            (segment.author.name.lower(), self.codec.decode(segment.token_ids))
            for sequence in trajectory.sequences
            for segment in sequence.segments
        ]


MakeWorld = Callable[..., Awaitable[World]]


@pytest.fixture
async def world(
    tmp_path: Path, policy_folder: Path, codec: HuggingFaceCodec
) -> AsyncIterator[MakeWorld]:
    """`await world(...)`: a world whose policy calls the tool once and answers."""
    async with AsyncExitStack() as stack:

        async def make(
            *,
            script: Script | None = None,
            tools: ToolDouble | None = None,
            timing: Timing | None = None,
            faults: Faults | None = None,
            incremental: bool = True,
            policy: Path = policy_folder,
            takes_adapters: bool = False,
            **changes: Any,
        ) -> World:
            spoken = codec if policy == policy_folder else HuggingFaceCodec(policy)
            mark = spoken.image_mark
            sampler = await stack.enter_async_context(
                ScriptedSampler(
                    script=script or by_turn(spoken, [CALL, ANSWER]),
                    timing=timing,
                    faults=faults,
                    incremental=incremental,
                    vocab_size=spoken.vocab_size,
                    image_token=mark.placeholder if mark else None,
                    takes_adapters=takes_adapters,
                    media_words=[spoken.encode(word) for word in ("<image>", "<|video_pad|>")],
                )
            )
            double = await stack.enter_async_context(serving(tools or ToolDouble()))
            tables = recipe_tables(
                policy=policy,
                sampler=sampler.url,
                tools={"python": double.address},
                engine=f"127.0.0.1:{free_port()}",
            )
            return World(
                sampler=sampler,
                tools=double,
                tables=merged(tables, changes),
                folder=tmp_path,
                codec=spoken,
            )

        yield make


@pytest.fixture(scope="module")
def noise() -> bytes:
    """A PNG of more than the 256 KiB that travel inside an answer."""
    pixels = random.Random(7).randbytes(SIDE * SIDE * 3)
    out = io.BytesIO()
    Image.frombytes("RGB", (SIDE, SIDE), pixels).save(out, "PNG")
    return out.getvalue()


@pytest.fixture(scope="module")
def image_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    log = tmp_path_factory.mktemp("image") / "service.log"
    running = start_service(log, "image")
    yield running
    running.process.terminate()
    assert running.process.wait(30) == 0, log.read_text(encoding="utf-8")


@pytest.fixture
def rows(tmp_path: Path, noise: bytes) -> dict[str, Any]:
    """A task table of one question about the picture."""
    (tmp_path / "noise.png").write_bytes(noise)
    row = {"id": "q", "prompt": "Look: <image>\nwhat is 0+1?", "images": ["noise.png"]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    return {"source": "rows.jsonl", "limits": LIMITS}


@pytest.fixture
def seeing(world: MakeWorld, vision: Path, rows: dict[str, Any]) -> MakeWorld:
    """`await seeing(*replies, size=..., task=..., ...)`: a world whose policy reads images."""

    async def make(
        *replies: str, size: int = 1, task: dict[str, Any] | None = None, **more: Any
    ) -> World:
        return await world(
            policy=vision,
            script=replying(vision, *(replies or (ANSWER,))),
            run={"steps": 1, "groups_per_step": 1, "group_size": size},
            task={**rows, **(task or {})},
            **more,
        )

    return make
