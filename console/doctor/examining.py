"""Runs checks in parallel, each with a timeout, and yields their findings as they come.

Invariants
- A check that hangs or raises is a finding, and stops no other check.
- A thread that hangs in a disk or a driver does not delay the end: threads are daemons.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from console.doctor.types import Check, Finding, Findings, Patient, unknown
from toolwright.process.command_line import missing
from toolwright.process.daemon import start_daemon

AT_ONCE = 3
"""More would measure each other on few cores."""


async def examine(
    patient: Patient, checks: Sequence[Check], begun: Callable[[str], None]
) -> AsyncIterator[tuple[Check, Findings]]:
    """Each check's findings, in the order of their end. begun: is told each subject that begins."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(check: Check) -> tuple[Check, Findings]:
        async with turns:
            begun(check.subject)
            return check, await _bounded(check, patient)

    tasks = [asyncio.create_task(one(check)) for check in checks]
    try:
        for done in asyncio.as_completed(tasks):
            yield await done
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _bounded(check: Check, patient: Patient) -> Findings:
    try:
        async with asyncio.timeout(check.seconds):
            if check.wait is not None:
                return await check.wait(patient)
            assert check.look is not None, "a check looks or waits"
            return await _in_thread(check.look, patient, check.subject)
    except TimeoutError:
        return [unknown(check.subject, f"no answer in {check.seconds:.0f} s, so it is not known")]
    except ModuleNotFoundError as error:
        sentence, _, mend = missing(error.name or "", check.needs).partition(": ")
        return [unknown(check.subject, f"not looked at: {sentence}", mend)]
    except Exception as error:  # noqa: BLE001 (a check that breaks is a finding of its own)
        return [_broken(check, error)]


def _broken(check: Check, error: Exception) -> Finding:
    words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return unknown(check.subject, f"could not be looked at ({words})")


async def _in_thread(look: Callable[[Patient], Findings], patient: Patient, name: str) -> Findings:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Findings] = loop.create_future()

    def tell(found: Findings | None, error: Exception | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(found or ())

    def work() -> None:
        found: Findings | None = None
        failure: Exception | None = None
        try:
            found = look(patient)
        except Exception as error:  # noqa: BLE001 (handed to the one who waits)
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, found, failure)

    start_daemon(work, f"doctor-{name}")
    return await answer
