"""`toolsvc tasks ADDRESS`: a file of tasks for the episodes of a running service."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from toolsvc.commands.endings import (
    Authority,
    Shown,
    ShownKey,
    UnusableWords,
    client_of,
    one_sentence,
)
from toolsvc.edge.client import Client
from toolsvc.sources.episodes import LOOK, MOST_SEED
from toolwright.rpc.errors import ServiceError, TransportError

_AT_ONCE = 8
"""Sessions that are open at once."""


def tasks(
    address: Annotated[str, typer.Argument(help="host:port or unix:/path of the service")],
    output: Annotated[Path, typer.Option(help="JSONL file, which a recipe names as task.source")],
    count: Annotated[int, typer.Option(min=1, help="number of tasks")] = 1000,
    first: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="seed of the first task")] = 0,
    tool: Annotated[str, typer.Option(help="tool that plays the episodes")] = "act",
    tls_ca: Authority = None,
    tls_cert: Shown = None,
    tls_key: ShownKey = None,
) -> None:
    """Write tasks for the episodes of a service (`gym:ID`, `openenv:URL`).

    The question of a task is the first observation of its episode. The metadata name the seed, and
    a digest by which the service refuses an episode that begins in another way.
    """
    with one_sentence(address):
        client = client_of(address, tls_ca, tls_cert, tls_key)
        rows = asyncio.run(_rows(client, tool, range(first, first + count)))
        text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UnusableWords(f"--output {output}: {error.strerror}") from error
    print(f"{len(rows)} tasks in {output}")


async def _rows(client: Client, tool: str, seeds: range) -> list[dict[str, Any]]:
    places = asyncio.Semaphore(_AT_ONCE)

    async def row(seed: int) -> dict[str, Any]:
        async with places:
            return await _row(client, tool, seed)

    async with client:
        try:
            async with asyncio.TaskGroup() as group:
                made = [group.create_task(row(seed)) for seed in seeds]
        except* (ServiceError, TransportError, UnusableWords) as errors:
            raise errors.exceptions[0] from None
    return [one.result() for one in made]


async def _row(client: Client, tool: str, seed: int) -> dict[str, Any]:
    """A row of the file. Raises UnusableWords if the tool plays no episodes."""
    session = await client.open((tool,), {"seed": seed})
    try:
        between_tags = session.tools[tool].action_format.HasField("tag")
        result = await session.call(tool, "", {"action": LOOK} if between_tags else {})
    finally:
        await session.close()
    if "opening" not in result.metrics:
        raise UnusableWords(f"the tool {tool!r} plays no episodes: serve gym:ID or openenv:URL")
    if result.truncated:
        raise UnusableWords(
            f"seed {seed}: the service cut its first observation: raise --observation-chars there"
        )
    return {
        "id": f"{tool}-{seed}",
        "question": "".join(part.text for part in result.observation),
        "metadata": {"seed": seed, "opening": int(result.metrics["opening"])},
    }
