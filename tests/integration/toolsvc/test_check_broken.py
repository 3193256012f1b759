"""The suite against the reference service, and against every one of its broken variants."""

import pytest

from tests.support.conformance.broken import BROKEN
from tests.support.conformance.reference import Reference, serving
from toolsvc.check.checks import ALL
from toolsvc.check.connection import Connection
from toolsvc.check.probe import load_probes
from toolsvc.check.runner import look, run
from toolsvc.check.types import Outcome, Report


async def report_of(service: Reference, names: tuple[str, ...] = ()) -> Report:
    """A busy machine gets its second, slower chance where a service must pass."""
    checks = [check for check in ALL if not names or check.name in names]
    async with serving(service) as address:
        connection = Connection(address)
        try:
            subjects = await look(connection, load_probes(), "")
            return await run(connection, subjects, checks, second_chance=not names)
        finally:
            await connection.close()


async def test_the_reference_keeps_the_contract() -> None:
    service = Reference()
    report = await report_of(service)
    failures = [(one.name, one.reason) for one in report.findings if one.outcome is Outcome.FAILED]
    assert failures == []
    skipped = [one.name for one in report.findings if one.outcome is Outcome.SKIPPED]
    assert skipped == ["calls-go-to-the-endpoint"]
    assert service.sessions == {}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_service_is_caught(name: str) -> None:
    broken = BROKEN[name]
    report = await report_of(broken.service(), broken.caught_by)
    assert {one.name: one.outcome for one in report.findings} == dict.fromkeys(
        broken.caught_by, Outcome.FAILED
    ), [one.reason for one in report.findings]
