"""`toolsvc check`: the conformance suite against an address.

Exit code 0 where no check failed, 1 where one did, 2 where there was nothing to check or no place
for the findings; that is one sentence on standard error."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from toolsvc.check.check import Check
from toolsvc.check.checks import ALL
from toolsvc.check.checks.calls import CALLS
from toolsvc.check.connection import Connection
from toolsvc.check.probe import Probe, ProbeError, load_probes
from toolsvc.check.report import show_checks, show_report, show_subjects
from toolsvc.check.runner import NoService, jobs_of, look, run
from toolsvc.check.types import CheckOutcome, Report
from toolsvc.commands.endings import Authority, Shown, ShownKey, UnusableWords, trust
from toolwright.rpc.options import TOKEN_VARIABLE
from toolwright.rpc.tls import TlsError


def check(
    address: Annotated[str, typer.Argument(help="host:port or unix:/path of the service")] = "",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="also write the findings to this file")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="run this check alone; may be repeated")
    ] = None,
    tool: Annotated[str, typer.Option(help="check with this tool alone")] = "",
    each_tool: Annotated[
        bool, typer.Option("--each-tool", help="make the checks of calls with every tool, not one")
    ] = False,
    probe: Annotated[
        list[Path] | None,
        typer.Option(help="TOML file of what your tools have to be told; may be repeated"),
    ] = None,
    tls_ca: Authority = None,
    tls_cert: Shown = None,
    tls_key: ShownKey = None,
    pace: Annotated[
        float, typer.Option(min=0.2, help="stretches all times, for a slow machine or service")
    ] = 1.0,
    list_checks: Annotated[
        bool, typer.Option("--list", help="list the checks and what must hold, and run none")
    ] = False,
) -> None:
    """Check that a service keeps the contract of ToolService, in any language.

    The suite opens sessions of its own under owners of its own, and closes them. It calls your
    tools: give it no service whose effects matter. Without a probe for a tool it sends actions
    such as "1" and checks the answers alone; docs/tools/conformance.md tells how to write a probe.
    TOOLWRIGHT_TOKEN is the bearer token.
    """
    console = Console()
    if list_checks:
        show_checks(console, ALL)
        return
    try:
        checks = _chosen(only or [])
        probes = load_probes(*(probe or []))
        trusted = trust(tls_ca, tls_cert, tls_key)
        connection = Connection(address, os.environ.get(TOKEN_VARIABLE, ""), *trusted)
        apart = CALLS if each_tool else ()
        report = asyncio.run(
            _check(console, connection, checks, probes, tool=tool, apart=apart, pace=pace)
        )
    except (NoService, ProbeError, TlsError, UnusableWords) as error:
        print(f"toolsvc: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    show_report(console, report, checks)
    if json_file is not None:
        try:
            json_file.write_text(json.dumps(report.as_json(), indent=2) + "\n", "utf-8")
        except OSError as error:
            print(f"toolsvc: the findings cannot be written: {error}", file=sys.stderr)
            raise typer.Exit(2) from None
    if report.count(CheckOutcome.FAILED):
        raise typer.Exit(1)


async def _check(
    console: Console,
    connection: Connection,
    checks: Sequence[Check],
    probes: Mapping[str, Probe],
    *,
    tool: str,
    apart: Collection[Check],
    pace: float,
) -> Report:
    if not connection.address:
        raise NoService("give the address of a service: toolsvc check 127.0.0.1:50061")
    try:
        subjects = await look(connection, probes, tool)
        show_subjects(console, connection.address, subjects)
        with console.status("") as status:
            jobs = jobs_of(checks, subjects, apart)
            left = len(jobs)

            def count(_: object) -> None:
                nonlocal left
                left -= 1
                status.update(f"{left} of {len(jobs)} checks to go")

            return await run(connection, jobs, pace=pace, seen=count)
    finally:
        await connection.close()


def _chosen(names: Sequence[str]) -> Sequence[Check]:
    if not names:
        return ALL
    unknown = sorted(set(names) - {check.name for check in ALL})
    if unknown:
        raise NoService(f"there is no check {', '.join(unknown)}; toolsvc check --list shows all")
    return [check for check in ALL if check.name in names]
