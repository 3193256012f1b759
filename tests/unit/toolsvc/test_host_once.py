"""Whatever goes wrong once a tool has run: its call id stays taken, and the effect is not had
twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.hosts import Counter, calling, hosting, refused, said
from toolsvc.errors import Reason, Refused, backend_down
from toolsvc.host.blobs import INLINE_BYTES, Blobs
from toolsvc.plugin.tool import OutOfProcess, Tool
from toolsvc.types import Call, Media, Recorded, Result, SessionInfo, Text


class Given(Counter):
    """Opens when it may, or fails."""

    name = "given"

    def __init__(self, fault: Exception | None) -> None:
        super().__init__()
        self._fault = fault
        self.opens, self.may_open = asyncio.Event(), asyncio.Event()

    async def open(self, session: SessionInfo) -> list[Any]:
        self.opens.set()
        if self._fault is not None:
            raise self._fault
        await self.may_open.wait()
        return await super().open(session)


class Maker(Counter):
    """A call of it gives its session a tool."""

    def __init__(self, fault: Exception | None = None) -> None:
        super().__init__()
        self.given = Given(fault)

    def session_tools(self, state: list[Any]) -> Sequence[Tool]:
        return (self.given,) if self.calls else ()


@pytest.mark.parametrize(
    "fault", [backend_down("no jail"), OSError("no disk")], ids=["a refusal", "a fault"]
)
async def test_a_call_whose_new_tools_cannot_be_opened_does_not_run_again(
    fault: Exception,
) -> None:
    maker = Maker(fault)
    async with hosting(maker) as host:
        for _ in range(3):
            with refused(Reason.INTERNAL) as failure:
                await host.call(calling("a"))
            assert failure.value.retry_after is None
        assert maker.calls == 1
        assert host.look("s").call_ids == ("a",)


async def test_a_call_that_has_run_cannot_be_cancelled_any_more() -> None:
    maker = Maker()
    async with hosting(maker) as host:
        asked = asyncio.create_task(host.call(calling("a")))
        await maker.given.opens.wait()
        assert not host.cancel("s", "a")
        maker.given.may_open.set()
        answer = await asked
        assert said(answer) == "1"
        assert isinstance(answer, Recorded)
        assert [tool.name for tool in answer.new_tools] == ["given"]


async def test_a_session_that_ends_while_its_call_is_recorded_runs_nothing_again() -> None:
    maker = Maker()
    async with hosting(maker) as host:
        asked = asyncio.create_task(host.call(calling("a")))
        await maker.given.opens.wait()
        assert await host.close("s")
        for again in (asked, host.call(calling("a"))):
            with refused(Reason.SESSION_CLOSED):
                await again
        assert maker.calls == 1


class Answers(Counter):
    """Answers as it is told, past all that checks what plugins return."""

    executor = OutOfProcess

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self._answer = answer

    async def run(self, *_: object) -> Any:
        self.calls += 1
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer


LARGE = Result.of(Media(media_type="image/png", data=bytes(INLINE_BYTES + 1)))


@pytest.mark.parametrize(
    "answer",
    [
        None,
        Result(observation=(Text(text=None),)),  # type: ignore[arg-type]
        LARGE,
        asyncio.CancelledError("theirs"),
        ZeroDivisionError("ours"),
    ],
    ids=["nothing", "no text", "no room for media", "a wait that was cancelled", "a fault"],
)
async def test_a_call_that_cannot_be_recorded_is_told_and_does_not_run_again(
    answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> Result:
        raise backend_down("no room")

    monkeypatch.setattr(Blobs, "take_out", full)
    tool = Answers(answer)
    async with hosting(tool) as host:
        for _ in range(2):
            async with asyncio.timeout(5):
                with refused(Reason.INTERNAL):
                    await host.call(calling("a"))
        assert tool.calls == 1


async def test_a_refusal_of_the_tool_itself_leaves_the_id_free() -> None:
    class Unwilling(Counter):
        async def call(self, state: list[Any], call: Call) -> str:
            if not self.runs.is_set():
                self.runs.set()
                raise Refused(Reason.BACKEND_DOWN, "not now", retry_after=0.1)
            return await super().call(state, call)

    async with hosting(Unwilling()) as host:
        with refused(Reason.BACKEND_DOWN):
            await host.call(calling("a"))
        assert host.look("s").call_ids == ()
        assert said(await host.call(calling("a"))) == "1"
