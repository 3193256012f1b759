"""One run of `bench tools`: starts the servers and carries out the plans."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from bench.measuring.report import Report
from bench.tools.load.servers import Server, find, start_floor, start_service
from bench.tools.plan import SweepPlan
from bench.tools.reading.rows import ToolRow
from bench.tools.reading.terminal import HEADER, Screen, line
from bench.tools.sweep import Servers, idle, sweep
from console.machine.processes import Processes

PACKAGES = ("toolwright", "grpcio", "protobuf", "uvloop", "numpy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The service to measure."""

    target: str | None = None
    """Address of a service that runs already; None starts one."""
    token: str = ""
    workers: int = 1
    """Processes of the service that is started."""
    arguments: Sequence[str] = ()
    """Further arguments of its `toolsvc serve`."""


async def run(plans: Sequence[SweepPlan], subject: Subject, screen: Screen) -> Report[ToolRow]:
    """Raises BenchError if a server does not start, ends by itself, or refuses a session."""
    load = psutil.getloadavg()[0]
    async with AsyncExitStack() as stack:
        logs = Path(stack.enter_context(TemporaryDirectory(prefix="bench-tools-")))
        processes = await stack.enter_async_context(Processes(logs))
        screen.doing("starting the service")
        service = await _service(plans, subject, processes)
        floor = await start_floor(processes)
        servers = Servers(service=service, floor=floor, idle_pss=await idle(service))
        rows = await processes.while_alive(_rows(plans, servers, screen))
    report = Report.of(rows, PACKAGES)
    report.machine["load before"] = f"{load:.1f}"
    return report


async def _service(plans: Sequence[SweepPlan], subject: Subject, processes: Processes) -> Server:
    tools = list(dict.fromkeys(tool for plan in plans for tool in plan.tools))
    if subject.target is not None:
        return await find(subject.target, subject.token, tools)
    return await start_service(
        processes,
        tools,
        sessions=max(plan.sessions for plan in plans),
        workers=subject.workers,
        arguments=subject.arguments,
    )


async def _rows(plans: Sequence[SweepPlan], servers: Servers, screen: Screen) -> list[ToolRow]:
    screen.say(HEADER)
    rows = []
    for plan in plans:
        async for row in sweep(plan, servers, screen.doing):
            screen.say(line(row))
            rows.append(row)
    return rows
