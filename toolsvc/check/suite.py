"""The whole suite against one address, for the command and for other test-suites.

from toolsvc.check import check_service

async def test_my_service_keeps_the_contract() -> None:
    report = await check_service("127.0.0.1:50061")
    assert report.failures == []
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from toolsvc.check.check import Check
from toolsvc.check.checks import ALL
from toolsvc.check.checks.calls import CALLS
from toolsvc.check.connection import Connection
from toolsvc.check.probe import load_probes
from toolsvc.check.runner import Job, NoService, jobs_of, look, run
from toolsvc.check.subject import Subject
from toolsvc.check.types import Finding, Report
from toolwright.rpc.tls import Certificate

Found = Callable[[Sequence[Subject], Sequence[Job]], None]


def checks_called(names: Collection[str]) -> Sequence[Check]:
    """The checks with these names; all without names. Raises NoService for an unknown name."""
    unknown = sorted(set(names) - {check.name for check in ALL})
    if unknown:
        raise NoService(f"there is no check {', '.join(unknown)}; toolsvc check --list shows all")
    return [check for check in ALL if not names or check.name in names]


async def check_service(
    address: str,
    *,
    token: str = "",
    authority: bytes | None = None,
    identity: Certificate | None = None,
    only: Collection[str] = (),
    tool: str = "",
    each_tool: bool = False,
    probes: Sequence[str | Path] = (),
    pace: float = 1.0,
    found: Found = lambda _subjects, _jobs: None,
    seen: Callable[[Finding], None] = lambda _: None,
) -> Report:
    """Checks that the service at `address` keeps the contract of ToolService.

    The suite opens its own sessions and calls the service's tools.

    token, authority, identity: bearer token, PEM of the certificate authority, client certificate.
    only: names of checks; all without names.
    tool: the only tool that the suite calls; "" for all.
    each_tool: makes the checks of calls with every tool instead of the first that fits.
    probes: TOML files that say what the service's tools can do.
    pace: factor for all times, 1.0 or more on a slow machine.
    found: receives the tools and the jobs before the first check.
    seen: receives each finding when its check ends.

    Raises NoService if no tool service answers, or if a check or tool is unknown. Raises ProbeError
    if a file of probes cannot be read.
    """
    checks = checks_called(only)
    known = load_probes(*map(Path, probes))
    if not address:
        raise NoService("give the address of a service: toolsvc check 127.0.0.1:50061")
    connection = Connection(address, token, authority, identity)
    try:
        subjects = await look(connection, known, tool)
        jobs = jobs_of(checks, subjects, CALLS if each_tool else ())
        found(subjects, jobs)
        return await run(connection, jobs, pace=pace, seen=seen)
    finally:
        await connection.close()
