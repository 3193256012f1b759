"""A session refuses the callers that it has left."""

from __future__ import annotations

from tests.support.hosts import Counter, calling, hosting, refused, said
from toolsvc.errors import Reason


async def test_a_session_refuses_whatever_a_caller_below_its_fence_wants() -> None:
    counter = Counter()
    async with hosting(counter) as host:
        assert said(await host.call(calling("a", fence=7))) == "1"
        assert host.look("s", 8).call_ids == ("a",)
        with refused(Reason.FENCED):
            await host.call(calling("b", fence=7))
        with refused(Reason.FENCED):
            await host.call(calling("a", fence=7))  # also for a result that it has
        with refused(Reason.FENCED):
            host.look("s", 7)
        with refused(Reason.FENCED):
            host.cancel("s", "a", 7)
        with refused(Reason.FENCED):
            await host.close("s", fence=7)
        assert counter.calls == 1
        assert counter.closed == []


async def test_the_new_caller_and_callers_without_a_fence_are_served() -> None:
    async with hosting(Counter()) as host:
        await host.call(calling("a", fence=7))
        assert said(await host.call(calling("a", fence=8))) == "1"
        assert said(await host.call(calling("b", fence=8))) == "2"
        assert said(await host.call(calling("c"))) == "3"
        assert await host.close("s")
