"""Runs checks against a service: several at once, each with its own sessions and deadline.

Invariants
- Each check has one finding, in the order of the checks, for any behaviour of check and service. A
  check that is made with each tool has one finding for each tool.
- Patient checks run beside all others. They take as long as the longest of them, not as their sum.
- A timed check that fails runs again, alone and at a third of the pace. Only a second failure
  counts: a slow machine does not break the contract.
- All sessions of the suite are closed when `run` returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import grpc
import grpc.aio

from toolsvc.check.check import Check
from toolsvc.check.client import CheckClient
from toolsvc.check.connection import Connection, Refusal, ask
from toolsvc.check.probe import Probe
from toolsvc.check.subject import Subject, subject_of
from toolsvc.check.types import CheckFailed, CheckOutcome, Finding, Report, Skipped
from toolwright.rpc.errors import readable
from toolwright.tool.v1 import tool_pb2 as pb

AT_ONCE = 12
"""Number of checks that run at the same time."""
CHECK_SECONDS = 40.0
"""Deadline of one check at pace 1, in seconds."""
SLOWER = 3.0
CONNECT_SECONDS = 5.0


class NoService(Exception):
    """The suite has nothing to check. The message is one sentence."""


async def look(connection: Connection, probes: Mapping[str, Probe], tool: str) -> list[Subject]:
    """The tools of the service, or the tool with this name. Raises NoService if there is no service
    or no such tool."""
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
        return "it requires another bearer token; set TOOLWRIGHT_TOKEN"
    if refusal.code is grpc.StatusCode.UNIMPLEMENTED:
        return "the server there does not serve toolwright.tool.v1.ToolService"
    return f"{refusal.code.name}, {readable(refusal.message)}"


@dataclass(frozen=True, slots=True)
class Job:
    """A check, and the tools that it may call."""

    check: Check
    subjects: Sequence[Subject]
    tool: str = ""
    """The tool's name, if the check is made with each tool."""


def jobs_of(
    checks: Sequence[Check], subjects: Sequence[Subject], each_tool: Collection[Check] = ()
) -> list[Job]:
    """Checks in `each_tool` are made with each tool, and the others once with all tools."""
    once = [Job(check, subjects) for check in checks if check not in each_tool]
    return once + [
        Job(check, [subject], subject.name)
        for subject in subjects
        for check in checks
        if check in each_tool
    ]


async def run(
    connection: Connection,
    jobs: Sequence[Job],
    *,
    pace: float = 1.0,
    second_chance: bool = True,
    seen: Callable[[Finding], None] = lambda _: None,
) -> Report:
    """All findings. `pace` is a factor for the checks' times. `seen` receives each finding when its
    check ends."""
    found: dict[int, Finding] = {}
    places = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, job: Job) -> None:
        async with nullcontext() if job.check.patient else places:
            finding = await _find(connection, job, pace)
        if not (second_chance and job.check.timed and finding.outcome is CheckOutcome.FAILED):
            found[number] = finding
            seen(finding)

    async with asyncio.TaskGroup() as group:
        for number, job in enumerate(jobs):
            group.create_task(one(number, job))
    for number, job in enumerate(jobs):
        if number not in found:
            found[number] = await _find(connection, job, pace * SLOWER)
            seen(found[number])
    return Report([found[number] for number in range(len(jobs))])


async def _find(connection: Connection, job: Job, pace: float) -> Finding:
    check, client = job.check, CheckClient(connection, job.subjects, pace=pace)
    outcome, reason = CheckOutcome.PASSED, ""
    limit = CHECK_SECONDS * max(1.0, pace)
    try:
        async with client, asyncio.timeout(limit):
            await check.body(client)
    except Skipped as skipped:
        outcome, reason = CheckOutcome.SKIPPED, str(skipped)
    except CheckFailed as failed:
        outcome, reason = CheckOutcome.FAILED, str(failed)
    except Refusal as refusal:
        outcome, reason = CheckOutcome.FAILED, f"unexpected: {refusal}: {refusal.message}"
    except TimeoutError:
        outcome, reason = CheckOutcome.FAILED, f"the check had not ended after {limit:g} s"
    except Exception as error:  # noqa: BLE001 - a check may not understand an answer
        outcome, reason = CheckOutcome.FAILED, f"unexpected: {type(error).__name__}: {error}"
    return Finding(name=check.name, rule=check.rule, outcome=outcome, reason=reason, tool=job.tool)
