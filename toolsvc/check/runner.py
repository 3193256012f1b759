"""Runs checks against a service: several at once, each in a session and under a deadline of its
own.

Invariants
- One finding for each check, in the order of the checks, whatever a check or the service does.
- A check that stands on times and fails is run again, alone and at a third of the pace: a slow
  machine is no breach of the contract. Failing twice is.
- No session of the suite is open when `run` returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import grpc
import grpc.aio

from toolsvc.check.check import Check
from toolsvc.check.client import Client
from toolsvc.check.connection import Connection, Refusal, ask
from toolsvc.check.probe import Probe
from toolsvc.check.subject import Subject, subject_of
from toolsvc.check.types import Failed, Finding, Outcome, Report, Skipped
from toolwright.tool.v1 import tool_pb2 as pb

AT_ONCE = 8
"""Checks that run at the same time."""
CHECK_SECONDS = 40.0
"""Deadline of one check at pace 1."""
SLOWER = 3.0
CONNECT_SECONDS = 5.0


class NoService(Exception):
    """Nothing that speaks ToolService answers at the address; one sentence."""


async def look(connection: Connection, probes: Mapping[str, Probe], tool: str) -> list[Subject]:
    """The tools of the service, or the one that was asked for. NoService if none answers."""
    try:
        listed = await ask(
            connection.stub().ListTools, pb.ListToolsRequest(), seconds=CONNECT_SECONDS
        )
    except Refusal as refusal:
        raise NoService(
            f"no tool service answers at {connection.address}: {_why(refusal)}"
        ) from refusal
    subjects = [subject_of(descriptor, probes) for descriptor in listed.tools]
    if not subjects:
        raise NoService(f"the service at {connection.address} lists no tool; nothing can be called")
    if not tool:
        return subjects
    chosen = [subject for subject in subjects if subject.name == tool]
    if not chosen:
        names = ", ".join(subject.name for subject in subjects)
        raise NoService(f"the service at {connection.address} has no tool {tool!r}, only {names}")
    return chosen


def _why(refusal: Refusal) -> str:
    if refusal.code is grpc.StatusCode.UNAUTHENTICATED:
        return "it wants another bearer token; set TOOLWRIGHT_TOKEN"
    if refusal.code is grpc.StatusCode.UNIMPLEMENTED:
        return "what listens there does not serve toolwright.tool.v1.ToolService"
    return f"{refusal.code.name}, {refusal.message}"


async def run(
    connection: Connection,
    subjects: Sequence[Subject],
    checks: Sequence[Check],
    *,
    pace: float = 1.0,
    second_chance: bool = True,
    seen: Callable[[Finding], None] = lambda _: None,
) -> Report:
    """All findings. `pace` stretches the checks' times; `seen` is told each finding as it comes."""
    found: dict[str, Finding] = {}
    places = asyncio.Semaphore(AT_ONCE)

    async def one(check: Check) -> None:
        async with places:
            finding = await _find(Client(connection, subjects, pace=pace), check, pace)
        if not (second_chance and check.timed and finding.outcome is Outcome.FAILED):
            found[check.name] = finding
            seen(finding)

    async with asyncio.TaskGroup() as group:
        for check in checks:
            group.create_task(one(check))
    slower = pace * SLOWER
    for check in checks:
        if check.name not in found:
            finding = await _find(Client(connection, subjects, pace=slower), check, slower)
            found[check.name] = finding
            seen(finding)
    return Report([found[check.name] for check in checks])


async def _find(client: Client, check: Check, pace: float) -> Finding:
    outcome, reason = Outcome.PASSED, ""
    limit = CHECK_SECONDS * max(1.0, pace)
    try:
        async with client, asyncio.timeout(limit):
            await check.body(client)
    except Skipped as skipped:
        outcome, reason = Outcome.SKIPPED, str(skipped)
    except Failed as failed:
        outcome, reason = Outcome.FAILED, str(failed)
    except Refusal as refusal:
        outcome, reason = Outcome.FAILED, f"unexpected: {refusal}: {refusal.message}"
    except TimeoutError:
        outcome, reason = Outcome.FAILED, f"it was not over after {limit:g} s"
    except Exception as error:  # noqa: BLE001 - what the service said made no sense to the check
        outcome, reason = Outcome.FAILED, f"unexpected: {type(error).__name__}: {error}"
    return Finding(name=check.name, rule=check.rule, outcome=outcome, reason=reason)
