"""One run of `bench tools`: servers up, the plan carried out, servers down, the document."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from bench.tools.load.servers import Server, find, start_floor, start_service
from bench.tools.plan import Plan
from bench.tools.reading.rows import Row
from bench.tools.reading.terminal import HEADER, Screen, line
from bench.tools.sweep import Servers, idle, sweep
from console.machine.processes import Processes
from console.machine.versions import machine, versions

PACKAGES = ("toolwright", "grpcio", "protobuf", "uvloop", "numpy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The service to measure: one that runs at `target`, or one that is started with `workers`
    processes and further `arguments` of `toolsvc serve`."""

    target: str | None = None
    token: str = ""
    workers: int = 1
    arguments: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`machine` and `versions`: name to value."""

    rows: Sequence[Row]
    machine: dict[str, str]
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """See `rows`."""
        return {
            "rows": [row.to_json() for row in self.rows],
            "machine": self.machine,
            "versions": self.versions,
        }


async def run(plans: Sequence[Plan], subject: Subject, screen: Screen) -> Report:
    """BenchError when a server does not start, ends by itself, or refuses a session."""
    load = psutil.getloadavg()[0]
    async with AsyncExitStack() as stack:
        logs = Path(stack.enter_context(TemporaryDirectory(prefix="bench-tools-")))
        processes = await stack.enter_async_context(Processes(logs))
        screen.doing("starting the service")
        service = await _service(plans, subject, processes)
        floor = await start_floor(processes)
        servers = Servers(service=service, floor=floor, idle_pss=await idle(service))
        rows = await processes.while_alive(_rows(plans, servers, screen))
    return Report(
        rows=rows,
        machine=machine() | {"load before": f"{load:.1f}"},
        versions=versions(PACKAGES),
    )


async def _service(plans: Sequence[Plan], subject: Subject, processes: Processes) -> Server:
    tools = dict.fromkeys(tool for plan in plans for tool in plan.tools)
    if subject.target is not None:
        return await find(subject.target, subject.token, list(tools))
    return await start_service(
        processes,
        list(tools),
        sessions=max(plan.sessions for plan in plans),
        workers=subject.workers,
        arguments=subject.arguments,
    )


async def _rows(plans: Sequence[Plan], servers: Servers, screen: Screen) -> list[Row]:
    screen.say(HEADER)
    rows = []
    for plan in plans:
        async for row in sweep(plan, servers, screen.doing):
            screen.say(line(row))
            rows.append(row)
    return rows
