"""`toolsvc isolation`: which level of isolation holds on this machine, found by the self-test that
`toolsvc serve` makes at its start; nothing is served.

Exit code 1 where no level holds with any of the sandboxes that were asked for."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Annotated

import structlog
import typer

from toolsvc.sandbox.config import Backend, SandboxConfig
from toolsvc.sandbox.errors import SandboxError
from toolsvc.sandbox.sandbox import Sandbox


def isolation(
    sandbox: Annotated[
        Backend | None, typer.Option(help="firejail or bubblewrap; default: each of them")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Test from inside which level of isolation holds on this machine, without serving anything."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    if sandbox is Backend.NONE:
        raise typer.BadParameter("without a sandbox nothing is isolated")
    backends = [sandbox] if sandbox else [Backend.FIREJAIL, Backend.BUBBLEWRAP]
    found = {str(backend): asyncio.run(_level(backend)) for backend in backends}
    if as_json:
        rows = {name: {"level": level, "why": why} for name, (level, why) in found.items()}
        print(json.dumps(rows))
    else:
        for name, (level, why) in found.items():
            print(f"{name}: {level or why}")
    if not any(level for level, _ in found.values()):
        raise typer.Exit(1)


async def _level(backend: Backend) -> tuple[str, str]:
    """The level that holds, or "" and why none does."""
    try:
        async with Sandbox(SandboxConfig(backend=backend, shards=1, ready=0)) as sandbox:
            return str(sandbox.level), ""
    except SandboxError as error:
        return "", str(error)
