"""The suite against the reference service, and against every one of its broken variants.

They stand side by side in one event loop: almost all of their time they wait.
"""

import asyncio
from collections.abc import Mapping, Sequence

import pytest
import pytest_asyncio

from tests.support.conformance.broken import BROKEN
from tests.support.conformance.reference import Reference, serving
from toolsvc.check.checks import ALL
from toolsvc.check.checks.calls import histories
from toolsvc.check.connection import Connection
from toolsvc.check.probe import load_probes
from toolsvc.check.runner import jobs_of, look, run
from toolsvc.check.types import CheckOutcome, Report, Rule

pytestmark = pytest.mark.quick

AT_ONCE = 24
REFERENCE = "reference"


async def report_of(service: Reference, names: tuple[str, ...] = ()) -> Report:
    """A busy machine gets its second, slower chance where a service must pass."""
    checks = [check for check in ALL if not names or check.name in names]
    async with serving(service) as address:
        connection = Connection(address)
        try:
            subjects = await look(connection, load_probes(), "")
            return await run(connection, jobs_of(checks, subjects), second_chance=not names)
        finally:
            await connection.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reports() -> Mapping[str, Report]:
    """Of every broken service, by those checks that must see it, and of the reference by all.
    Histories keep the loop busy, so they are played when all that stands on times is over."""
    listed = [name for name, one in BROKEN.items() if one.rule is not Rule.HISTORY]
    unlisted = [name for name in BROKEN if name not in listed]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(histories, "SECONDS", 60.0)
        patch.setattr(histories, "SHRINK_SECONDS", 0.5)
        reference, broken = await asyncio.gather(
            _of_the_reference(), _side_by_side(listed, AT_ONCE)
        )
        return {REFERENCE: reference} | broken | await _side_by_side(unlisted, 2)


async def _of_the_reference() -> Report:
    service = Reference()
    report = await report_of(service)
    assert service.sessions == {}
    return report


async def _side_by_side(names: Sequence[str], at_once: int) -> dict[str, Report]:
    places = asyncio.Semaphore(at_once)

    async def one(name: str) -> Report:
        async with places:
            return await report_of(BROKEN[name].service(), BROKEN[name].caught_by)

    return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))


def test_the_reference_keeps_the_contract(reports: Mapping[str, Report]) -> None:
    found = reports[REFERENCE].findings
    assert [one for one in found if one.outcome is CheckOutcome.FAILED] == []
    skipped = [one.name for one in found if one.outcome is CheckOutcome.SKIPPED]
    assert skipped == ["calls-go-to-the-endpoint"]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_service_is_caught(name: str, reports: Mapping[str, Report]) -> None:
    report = reports[name]
    assert {one.name: one.outcome for one in report.findings} == dict.fromkeys(
        BROKEN[name].caught_by, CheckOutcome.FAILED
    ), [one.reason for one in report.findings]
