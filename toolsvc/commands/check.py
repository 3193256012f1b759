"""`toolsvc check`: the conformance suite against an address.

Exit codes: 0 if no check failed, 1 if a check failed. 2, with one sentence on standard error, if
there was nothing to check or the findings could not be written.

The suite is imported when it runs: other commands do not need its packages.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from toolsvc.commands.endings import Authority, Shown, ShownKey, UnusableWords, trust
from toolwright.process.command_line import missing
from toolwright.rpc.options import TOKEN_VARIABLE
from toolwright.rpc.tls import TlsError

if TYPE_CHECKING:
    from toolsvc.check.runner import Job
    from toolsvc.check.subject import Subject
    from toolsvc.check.types import Finding


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
        typer.Option(help="TOML file of probes: what your tools can do; may be repeated"),
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

    The suite opens its own sessions under its own owners, and closes them. It calls your tools: do
    not give it a service whose effects matter. Without a probe for a tool it sends actions such as
    "1" and checks only the answers; docs/tools/conformance.md says how to write a probe.
    TOOLWRIGHT_TOKEN is the bearer token.
    """
    try:
        from hypothesis.configuration import set_hypothesis_home_dir

        from toolsvc.check import ALL, CheckOutcome, NoService, ProbeError, check_service
        from toolsvc.check.report import report_console, show_checks, show_report, show_subjects
    except ModuleNotFoundError as error:
        raise _unusable(missing(error.name or "", "toolsvc")) from None
    console = report_console()
    if list_checks:
        show_checks(console, ALL)
        return
    try:
        authority, identity = trust(tls_ca, tls_cert, tls_key)
        with console.status("") as status, TemporaryDirectory() as folder:
            set_hypothesis_home_dir(folder)  # not the user's folder
            left = total = 0

            def found(subjects: Sequence[Subject], jobs: Sequence[Job]) -> None:
                nonlocal left, total
                left = total = len(jobs)
                show_subjects(console, address, subjects)

            def count(_: Finding) -> None:
                nonlocal left
                left -= 1
                status.update(f"{left} of {total} checks to go")

            report = asyncio.run(
                check_service(
                    address,
                    token=os.environ.get(TOKEN_VARIABLE, ""),
                    authority=authority,
                    identity=identity,
                    only=only or (),
                    tool=tool,
                    each_tool=each_tool,
                    probes=probe or (),
                    pace=pace,
                    found=found,
                    seen=count,
                )
            )
    except (NoService, ProbeError, TlsError, UnusableWords) as error:
        raise _unusable(str(error)) from None
    show_report(console, report, ALL)
    if json_file is not None:
        try:
            json_file.write_text(json.dumps(report.as_json(), indent=2) + "\n", "utf-8")
        except OSError as error:
            raise _unusable(f"the findings cannot be written: {error}") from None
    if report.count(CheckOutcome.FAILED):
        raise typer.Exit(1)


def _unusable(sentence: str) -> typer.Exit:
    print(f"toolsvc: {sentence}", file=sys.stderr)
    return typer.Exit(2)
