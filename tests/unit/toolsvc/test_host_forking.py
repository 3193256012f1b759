"""ForkSession: a second session with the state of the first, where that can be had."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from typing import Any

import pytest

from tests.support.hosts import Counter, Parallel, calling, opening, refused, said
from toolsvc import Call, SessionInfo, Tool
from toolsvc.errors import Reason
from toolsvc.host.host import Host
from toolsvc.types import ForkRequest
from toolwright.types import BlobRef


class Forking(Counter):
    """Its state is a number, which is easily had a second time."""

    def __init__(self) -> None:
        super().__init__()
        self.forked = asyncio.Event()
        self.may_fork = asyncio.Event()
        self.may_fork.set()

    async def fork(self, state: list[Any], session: SessionInfo) -> list[Any]:
        self.forked.set()
        await self.may_fork.wait()
        return [session.session_id, state[1]]


class Stateless(Tool):
    name = "counter"

    async def open(self, session: SessionInfo) -> SessionInfo:
        return session

    async def call(self, state: SessionInfo, call: Call) -> str:
        media = ",".join(media.data.decode() for media in state.blobs.values())
        return f"{state.session_id} {dict(state.metadata)} {media}"


class Giving(Tool):
    """Gives sessions a tool of their own."""

    name = "giving"

    def session_tools(self, state: object) -> tuple[Tool, ...]:
        return ()


class Threaded(Forking):
    """Runs in a thread that goes on after the call was answered."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end = threading.Event()

    def call(self, state: list[Any], call: Call) -> str:  # type: ignore[override]
        self.may_end.wait(10)
        return "x"


def forking(name: str = "child", parent: str = "s", **more: Any) -> ForkRequest:
    child = opening(name, **{"digest": f"fork {parent} {name}".encode(), **more})
    return ForkRequest(parent=parent, child=child)


async def test_a_fork_of_a_stateless_session_is_a_new_one_with_its_task() -> None:
    picture = b"a picture"
    blob = BlobRef(
        sha256=hashlib.sha256(picture).hexdigest(), media_type="image/png", size=len(picture)
    )
    async with Host([Stateless()]) as host:
        with host.take_in(blob) as upload:
            await upload.add(picture)
            await upload.finish()
        await host.open(opening(metadata={"task": 1}, blobs=(blob,)))
        await host.fork(forking())
        assert said(await host.call(calling("a", session="child"))) == (
            "child {'task': 1} a picture"
        )
        await host.close("s")
        assert host.blob(blob.sha256) == picture
        await host.fork(forking("other", "child", metadata={"task": 2}))
        assert "'task': 2" in said(await host.call(calling("b", session="other")))


@pytest.mark.parametrize("tool", [Counter, Giving])
async def test_a_tool_that_cannot_be_forked_says_so_and_its_session_is_not_forked(
    tool: type[Tool],
) -> None:
    async with Host([Stateless() if tool is Giving else Forking(), tool()]) as host:
        (own,) = [one for one in host.list_tools() if one.name == tool.name][-1:]
        assert not own.fork
        await host.open(opening())
        with refused(Reason.NOT_SERVED) as failure:
            await host.fork(forking())
        assert failure.value.subject == tool.name
        assert host.session_ids == ["s"]


async def test_a_session_whose_thread_goes_on_is_busy() -> None:
    tool = Threaded()
    async with Host([tool]) as host:
        await host.open(opening())
        late = await host.call(calling("a", run_limit=0.05))
        assert late.result.error is not None
        with refused(Reason.SESSION_BUSY):
            await host.fork(forking())
        tool.may_end.set()


async def test_a_call_of_the_parent_waits_for_the_fork() -> None:
    tool = Forking()
    tool.may_fork.clear()
    async with Host([tool]) as host:
        await host.open(opening())
        fork = asyncio.create_task(host.fork(forking()))
        await tool.forked.wait()
        call = asyncio.create_task(host.call(calling("a")))
        await asyncio.wait((call,), timeout=0.1)
        assert tool.calls == 0
        tool.may_fork.set()
        await fork
        assert said(await call) == "1"
        assert host.look("child").call_ids == ()


async def test_a_fork_asked_for_twice_is_one_and_its_id_belongs_to_it() -> None:
    async with Host([Forking()]) as host:
        await host.open(opening())
        first, second = await asyncio.gather(host.fork(forking()), host.fork(forking()))
        assert first == second
        assert sorted(host.session_ids) == ["child", "s"]
        await host.close("s")
        assert await host.fork(forking()) == first
        with refused(Reason.INVALID_REQUEST):
            await host.open(opening("child"))
        with refused(Reason.INVALID_REQUEST):
            await host.fork(forking("child", "another"))
        await host.close("child")
        with refused(Reason.SESSION_CLOSED):
            await host.fork(forking())


async def test_a_fork_takes_a_place_and_has_the_lease_of_its_own_request() -> None:
    async with Host([Forking()], max_sessions=2) as host:
        await host.open(opening())
        await host.fork(forking(owner="another", lease=30.0))
        assert host.renew("another", 30.0, ()).held == ("child",)
        with refused(Reason.TOO_MANY_SESSIONS):
            await host.fork(forking("third"))


async def test_what_cannot_be_forked_is_refused_as_a_call_of_it_would_be() -> None:
    async with Host([Forking(), Parallel()]) as host:
        with refused(Reason.SESSION_NOT_FOUND):
            await host.fork(forking())
        await host.open(opening(tools=("counter",)))
        for tools in (("parallel",), ("counter", "parallel"), ("unknown",)):
            with refused(Reason.INVALID_REQUEST):
                await host.fork(forking(tools=tools))
        await host.fork(forking(tools=("counter",)))
        await host.close("s")
        with refused(Reason.SESSION_CLOSED):
            await host.fork(forking("late"))


async def test_a_fork_that_takes_too_long_leaves_nothing_and_frees_its_parent() -> None:
    tool = Forking()
    tool.may_fork.clear()
    async with Host([tool]) as host:
        await host.open(opening())
        with refused(Reason.QUEUE_LIMIT):
            await host.fork(forking(queue_limit=0.05))
        assert host.session_ids == ["s"]
        assert said(await host.call(calling("a"))) == "1"
        tool.may_fork.set()
        await host.fork(forking())
