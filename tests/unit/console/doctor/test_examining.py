"""A check that hangs, breaks or lacks a package costs itself alone."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from console.doctor.types import Check, Finding, Findings, Level, Patient, ok
from console.doctor.visit import AT_ONCE, examine


async def found(checks: Mapping[str, Check], seconds: float = 30.0) -> dict[str, Finding]:
    answers = [one async for one in examine(checks, Patient(environment={}), seconds)]
    return {finding.subject: finding for findings in answers for finding in findings}


async def test_a_check_that_hangs_is_given_up_and_the_others_are_heard() -> None:
    never = threading.Event()

    def hangs(_patient: Patient) -> Findings:
        never.wait(60)
        return []

    fine: dict[str, Check] = {f"{n}": lambda _p, n=n: [ok(f"{n}", "fine")] for n in range(AT_ONCE)}
    answers = await found({"disk": hangs, **fine}, seconds=0.5)
    never.set()
    assert answers.pop("disk").level is Level.UNKNOWN
    assert {one.sentence for one in answers.values()} == {"fine"}
    assert set(answers) == set(fine)


async def test_a_check_that_breaks_or_lacks_a_package_is_a_finding() -> None:
    def breaks(_patient: Patient) -> Findings:
        yield ok("disk", "so far")
        raise ZeroDivisionError("of all\nthings")

    def lacks(_patient: Patient) -> Findings:
        raise ModuleNotFoundError("No module named 'aiohttp'", name="aiohttp")

    answers = await found({"disk": breaks, "servers": lacks})
    assert answers["disk"].sentence == "could not be examined (ZeroDivisionError: of all things)"
    assert answers["disk"].level is Level.UNKNOWN
    assert answers["servers"].fix == "pip install 'toolwright[console]'"
