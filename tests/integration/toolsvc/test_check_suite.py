"""The conformance suite as another test-suite uses it."""

import pytest

from tests.support.conformance.broken import BROKEN
from tests.support.conformance.reference import Reference, serving
from toolsvc.check import ALL, NoService, check_service

pytestmark = pytest.mark.quick

ONLY = ("health-of-the-server", "a-repetition-has-no-effect")


async def test_a_service_that_keeps_the_contract_has_no_failures() -> None:
    async with serving(Reference()) as address:
        report = await check_service(address, only=ONLY)
    assert report.failures == []
    assert [one.name for one in report.findings] == list(ONLY)
    assert set(ONLY) <= {check.name for check in ALL}


async def test_a_breach_is_a_failure() -> None:
    async with serving(BROKEN["runs-twice"].service()) as address:
        report = await check_service(address, only=ONLY)
    assert [one.name for one in report.failures] == ["a-repetition-has-no-effect"]


async def test_an_unknown_check_is_an_error() -> None:
    with pytest.raises(NoService, match="no-such-check"):
        await check_service("127.0.0.1:9", only=["no-such-check"])
