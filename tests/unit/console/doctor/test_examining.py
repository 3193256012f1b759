"""A check that hangs, breaks or lacks a package costs itself alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

from console.doctor.examining import AT_ONCE, examine
from console.doctor.types import Check, Finding, Findings, Level, Patient, ok

PATIENT = Patient(folder=Path("/"), environment={})


async def found(checks: Sequence[Check]) -> dict[str, Finding]:
    begun: list[str] = []
    answers = [pair async for pair in examine(PATIENT, checks, begun.append)]
    assert sorted(begun) == sorted(check.subject for check in checks)
    return {check.subject: finding for check, findings in answers for finding in findings}


async def test_a_check_that_hangs_is_given_up_and_the_others_are_heard() -> None:
    never = threading.Event()

    def hangs(_patient: Patient) -> Findings:
        never.wait(60)
        return []

    async def waits(_patient: Patient) -> Findings:
        await asyncio.Event().wait()
        return []

    answers = await found(
        [
            Check(subject="disk", look=hangs, seconds=0.1),
            Check(subject="net", wait=waits, seconds=0.1),
            *(Check(subject=f"{n}", look=lambda _p: [ok("x", "fine")]) for n in range(AT_ONCE + 1)),
        ]
    )
    never.set()
    for subject in ("disk", "net"):
        assert answers[subject].level is Level.UNKNOWN
        assert answers[subject].sentence == "no answer in 0 s, so it is not known"
    assert answers["0"].sentence == "fine"


async def test_a_check_that_breaks_is_a_finding() -> None:
    def breaks(_patient: Patient) -> Findings:
        raise ZeroDivisionError("of all\nthings")

    answers = await found([Check(subject="disk", look=breaks)])
    assert answers["disk"].sentence == "could not be looked at (ZeroDivisionError: of all things)"
    assert answers["disk"].level is Level.UNKNOWN
