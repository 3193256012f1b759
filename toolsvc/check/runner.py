"""Runs checks against a service: several at once, each in a session and under a deadline of its
own.

Invariants
- One finding for each check, in the order of the checks, whatever a check or the service does; for
  one that is made of each tool apart, one a tool.
- A check that waits for long takes no place among those that run at once: the whole takes as long
  as the longest of them, not as their sum.
- A check that stands on times and fails is run again, alone and at a third of the pace: a slow
  machine is no breach of the contract. Failing twice is.
- No session of the suite is open when `run` returns.
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
    return f"{refusal.code.name}, {readable(refusal.message)}"


@dataclass(frozen=True, slots=True)
class Job:
    """A check, and the tools that it may ask."""

    check: Check
    subjects: Sequence[Subject]
    tool: str = ""
    """The only one, where others are asked the same apart."""


def jobs_of(
    checks: Sequence[Check], subjects: Sequence[Subject], apart: Collection[Check] = ()
) -> list[Job]:
    """Those in `apart` are made of each tool, the others once, with all tools."""
    once = [Job(check, subjects) for check in checks if check not in apart]
    return once + [
        Job(check, [subject], subject.name)
        for subject in subjects
        for check in checks
        if check in apart
    ]


async def run(
    connection: Connection,
    jobs: Sequence[Job],
    *,
    pace: float = 1.0,
    second_chance: bool = True,
    seen: Callable[[Finding], None] = lambda _: None,
) -> Report:
    """All findings. `pace` stretches the checks' times; `seen` is told each finding as it comes."""
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
        outcome, reason = CheckOutcome.FAILED, f"it was not over after {limit:g} s"
    except Exception as error:  # noqa: BLE001 - what the service said made no sense to the check
        outcome, reason = CheckOutcome.FAILED, f"unexpected: {type(error).__name__}: {error}"
    return Finding(name=check.name, rule=check.rule, outcome=outcome, reason=reason, tool=job.tool)
