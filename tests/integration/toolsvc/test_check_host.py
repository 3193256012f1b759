"""The conformance suite against our own edge and host, in this process and without a sandbox.

The tools are those of the reference service, so the shipped probes belong to them. What the suite
checks here needs no test of its own in the unit tests of the host.
"""

import asyncio

import pytest
from pydantic import BaseModel

from tests.support.conformance.broken import BROKEN
from tests.support.conformance.reference import serving
from tests.support.served_host import served
from toolsvc import Call, Media, SessionInfo, Tool, ToolFailed
from toolsvc.check import CheckOutcome, NoService, check_service
from toolsvc.host.host import Host
from toolsvc.types import Result

pytestmark = pytest.mark.quick


class Counting(BaseModel):
    add: int
    after: float


class Saying(BaseModel):
    text: str
    after: float
    times: int


class Counter(Tool):
    name = "counter"
    description = "Adds to a counter, after some seconds, and shows it."
    arguments = Counting
    stateful = True

    def open(self, session: SessionInfo) -> list[int]:
        return [0]

    async def call(self, state: list[int], call: Call) -> str:
        await asyncio.sleep(call.arguments["after"])
        if call.arguments["add"] < 0:
            raise ToolFailed("a counter only goes up")
        state[0] += call.arguments["add"]
        return str(state[0])

    def fork(self, state: list[int], session: SessionInfo) -> list[int]:
        return list(state)


class Echo(Tool):
    name = "echo"
    description = "Says a text some times, after some seconds."
    arguments = Saying
    parallel_calls = True

    async def call(self, state: object, call: Call) -> str:
        await asyncio.sleep(call.arguments["after"])
        return str(call.arguments["text"] * call.arguments["times"])


class Draw(Tool):
    """A session with this tool cannot be forked."""

    name = "draw"
    description = "Draws a small shape and a large one."
    stateful = True
    parallel_calls = True
    media = True

    def call(self, state: object, call: Call) -> Result:
        media = (Media(media_type="image/svg+xml", data=b"p" * size) for size in (100, 400_000))
        return Result(observation=tuple(media))


async def test_a_breach_is_a_failure() -> None:
    async with serving(BROKEN["runs-twice"].service()) as address:
        report = await check_service(address, only=["a-repetition-has-no-effect"])
    assert [one.name for one in report.failures] == ["a-repetition-has-no-effect"]


async def test_an_unknown_check_is_an_error() -> None:
    with pytest.raises(NoService, match="no-such-check"):
        await check_service("127.0.0.1:9", only=["no-such-check"])


async def test_our_host_keeps_the_contract() -> None:
    async with Host([Counter(), Echo(), Draw()]) as host, served(host) as address:
        report = await check_service(address)
    assert report.failures == []
    skipped = {one.name for one in report.findings if one.outcome is CheckOutcome.SKIPPED}
    assert skipped == {"calls-go-to-the-endpoint"}
