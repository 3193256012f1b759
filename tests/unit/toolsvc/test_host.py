"""Sessions, leases and calls, with tools that need no sandbox."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import toolsvc.admission
import toolsvc.host
import toolsvc.task_blobs
import toolsvc.turnstile
from toolsvc.blobs import INLINE_BYTES
from toolsvc.errors import Reason, Refused
from toolsvc.host import Host
from toolsvc.tool import Tool
from toolsvc.types import (
    Call,
    CallRequest,
    Media,
    Opened,
    OpenRequest,
    Recorded,
    Result,
    Running,
    SessionInfo,
    Text,
)
from toolwright.types import BlobRef, ToolErrorKind


class Counter(Tool):
    """Counts its calls; sleeps for as long as the action says."""

    name = "counter"
    stateful = True

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.calls = 0

    async def open(self, session: SessionInfo) -> list[Any]:
        self.opened.append(session.session_id)
        return [session.session_id, 0]

    async def call(self, state: list[Any], call: Call) -> str:
        self.calls += 1
        state[1] += 1
        count = state[1]
        await asyncio.sleep(float(call.arguments["text"] or 0))
        return str(count)

    async def close(self, state: list[Any]) -> None:
        self.closed.append(state[0])


class Parallel(Counter):
    name = "parallel"
    parallel_calls = True


def opening(name: str = "s", owner: str = "o", lease: float = 60.0, **more: Any) -> OpenRequest:
    fields: dict[str, Any] = {
        "session_id": name,
        "owner": owner,
        "lease": lease,
        "tools": (),
        "metadata": {},
        "queue_limit": 5.0,
        "digest": f"{name} {owner}".encode(),
    }
    return OpenRequest(**{**fields, **more})


def calling(call_id: str, seconds: float = 0, session: str = "s", **more: Any) -> CallRequest:
    fields: dict[str, Any] = {
        "session_id": session,
        "call_id": call_id,
        "tool": "counter",
        "action": "",
        "arguments": {"text": str(seconds)},
        "turn": 0,
        "turns_left": 3,
        "last_step": False,
        "queue_limit": 5.0,
        "run_limit": 10.0,
        "wait": 20.0,
        "metadata": {},
        "digest": f"{call_id} {seconds}".encode(),
    }
    return CallRequest(**{**fields, **more})


@pytest.fixture
def counter() -> Counter:
    return Counter()


@pytest.fixture
async def host(counter: Counter) -> AsyncIterator[Host]:
    async with Host([counter, Parallel()], max_sessions=8) as running:
        yield running


def said(answer: Recorded | Running) -> str:
    assert isinstance(answer, Recorded)
    (part,) = answer.result.observation
    assert isinstance(part, Text)
    return part.text


@contextlib.contextmanager
def refused(reason: Reason) -> Any:
    with pytest.raises(Refused) as failure:
        yield failure
    assert failure.value.reason is reason


async def test_a_session_has_a_state_of_its_own(host: Host) -> None:
    await host.open(opening("s"))
    await host.open(opening("t"))
    assert said(await host.call(calling("a"))) == "1"
    assert said(await host.call(calling("b"))) == "2"
    assert said(await host.call(calling("a", session="t"))) == "1"


async def test_opening_again_with_the_same_request_gives_the_same_session(
    host: Host, counter: Counter
) -> None:
    opened = await asyncio.gather(*(host.open(opening()) for _ in range(4)))
    assert counter.opened == ["s"]
    assert all(isinstance(one, Opened) and one == opened[0] for one in opened)
    with refused(Reason.INVALID_REQUEST):
        await host.open(opening(digest=b"other"))


async def test_a_session_may_ask_for_some_of_the_tools(host: Host) -> None:
    opened = await host.open(opening(tools=("parallel",)))
    assert [tool.name for tool in opened.tools] == ["parallel"]
    with refused(Reason.UNKNOWN_TOOL):
        await host.call(calling("a"))
    with refused(Reason.UNKNOWN_TOOL):
        await host.open(opening("t", tools=("nothing",)))


async def test_a_retry_gets_the_answer_and_nothing_runs_again(host: Host, counter: Counter) -> None:
    await host.open(opening())
    first = await host.call(calling("a"))
    assert await host.call(calling("a")) == first
    assert counter.calls == 1


async def test_a_retry_joins_the_call_in_flight(host: Host, counter: Counter) -> None:
    await host.open(opening())
    answers = await asyncio.gather(*(host.call(calling("a", 0.1)) for _ in range(5)))
    assert {said(answer) for answer in answers} == {"1"}
    assert counter.calls == 1


async def test_the_same_id_with_another_request_is_refused(host: Host, counter: Counter) -> None:
    await host.open(opening())
    await host.call(calling("a"))
    with refused(Reason.CALL_ID_REUSED):
        await host.call(calling("a", digest=b"other"))
    assert counter.calls == 1


async def test_an_acknowledged_result_is_forgotten_but_not_run_again(
    host: Host, counter: Counter
) -> None:
    await host.open(opening())
    await host.call(calling("a"))
    await host.call(calling("b", turn=1))
    with refused(Reason.RESULT_FORGOTTEN):
        await host.call(calling("a"))
    with refused(Reason.RESULT_FORGOTTEN):
        await host.call(calling("never", turn=0))
    assert counter.calls == 2


async def test_a_long_call_answers_running_until_it_is_done(host: Host) -> None:
    await host.open(opening())
    answer = await host.call(calling("a", 0.3, wait=0.05))
    assert isinstance(answer, Running)
    assert answer.run > 0.03
    assert said(await host.call(calling("a", 0.3))) == "1"


async def test_a_caller_that_goes_away_does_not_stop_the_call(host: Host, counter: Counter) -> None:
    await host.open(opening())
    caller = asyncio.create_task(host.call(calling("a", 0.2)))
    await asyncio.sleep(0.05)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert said(await host.call(calling("a", 0.2))) == "1"
    assert counter.calls == 1


async def test_the_run_limit_is_a_result(host: Host) -> None:
    await host.open(opening())
    answer = await host.call(calling("a", 5, run_limit=0.05))
    assert isinstance(answer, Recorded)
    assert answer.result.error is not None
    assert answer.result.error.kind is ToolErrorKind.TIMEOUT
    assert 0.04 < answer.run < 2
    assert await host.call(calling("a", 5, run_limit=0.05)) == answer


async def test_the_queue_limit_is_a_refusal_and_leaves_the_id_free(
    host: Host, counter: Counter
) -> None:
    await host.open(opening())
    first = asyncio.create_task(host.call(calling("a", 0.4)))
    await asyncio.sleep(0.02)
    with refused(Reason.QUEUE_LIMIT) as failure:
        await host.call(calling("b", queue_limit=0.05))
    assert failure.value.retry_after is not None
    assert counter.calls == 1
    answer = await host.call(calling("b"))
    assert said(answer) == "2"
    assert isinstance(answer, Recorded)
    assert answer.queued > 0.1
    assert answer.run < 0.2
    await first


async def test_calls_run_in_order_unless_the_tool_says_otherwise(host: Host) -> None:
    await host.open(opening())
    answers = await asyncio.gather(*(host.call(calling(str(i), 0.05)) for i in range(4)))
    assert [said(answer) for answer in answers] == ["1", "2", "3", "4"]
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.gather(*(host.call(calling(f"p{i}", 0.3, tool="parallel")) for i in range(8)))
    assert loop.time() - began < 1.5


async def test_a_tool_with_a_queue_of_its_own_needs_no_leave_to_start(
    counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Queues(Counter):
        name = "queues"
        queues = True

    monkeypatch.setattr(toolsvc.admission, "HOLD_SECONDS", 60.0)
    async with Host([counter, Queues()], permits=1) as host:
        for name in "ab":
            await host.open(opening(name))
        holds = asyncio.create_task(host.call(calling("1", 60, session="a")))
        waits = asyncio.create_task(host.call(calling("1", session="b")))
        assert said(await host.call(calling("2", session="b", tool="queues"))) == "1"
        assert host.waiting == 1
        assert host.cancel("a", "1")
        await holds
        assert said(await waits) == "1"


async def test_too_many_waiting_calls_are_refused(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolsvc.turnstile, "WAITING_CALLS", 2)
    await host.open(opening())
    waiting = [asyncio.create_task(host.call(calling(str(i), 0.1))) for i in range(3)]
    await asyncio.sleep(0.02)
    with refused(Reason.SESSION_BUSY) as failure:
        await host.call(calling("one too many"))
    assert failure.value.retry_after is not None
    await asyncio.gather(*waiting)


async def test_cancelling_a_running_and_a_queued_call(host: Host, counter: Counter) -> None:
    await host.open(opening())
    running = asyncio.create_task(host.call(calling("a", 10)))
    queued = asyncio.create_task(host.call(calling("b", 10)))
    await asyncio.sleep(0.02)
    assert host.cancel("s", "b")
    assert host.cancel("s", "a")
    for task in (running, queued):
        answer = await task
        assert isinstance(answer, Recorded)
        assert answer.result.error is not None
        assert answer.result.error.kind is ToolErrorKind.CANCELLED
    assert counter.calls == 1
    assert not host.cancel("s", "a")
    assert not host.cancel("s", "unknown")
    assert said(await host.call(calling("c"))) == "2"


async def test_cancelling_a_call_that_has_not_begun_yet(host: Host, counter: Counter) -> None:
    await host.open(opening())
    task = asyncio.create_task(host.call(calling("a", 10)))
    await asyncio.sleep(0)
    assert host.cancel("s", "a")
    answer = await task
    assert isinstance(answer, Recorded)
    assert answer.result.error is not None
    assert answer.result.error.kind is ToolErrorKind.CANCELLED
    assert counter.calls == 0


async def test_an_action_that_makes_no_sense_is_a_result(host: Host, counter: Counter) -> None:
    await host.open(opening())
    answer = await host.call(calling("a", arguments=None, action="no block here"))
    assert isinstance(answer, Recorded)
    assert not answer.result.valid
    assert "<counter>" in answer.result.invalid_reason
    assert counter.calls == 0


async def test_closing_ends_calls_and_states_and_is_idempotent(
    host: Host, counter: Counter
) -> None:
    await host.open(opening())
    caller = asyncio.create_task(host.call(calling("a", 10)))
    await asyncio.sleep(0.02)
    assert await host.close("s")
    with refused(Reason.SESSION_CLOSED):
        await caller
    assert counter.closed == ["s"]
    assert not await host.close("s")
    with refused(Reason.SESSION_CLOSED):
        await host.call(calling("b"))
    with refused(Reason.SESSION_CLOSED):
        await host.open(opening())
    with refused(Reason.SESSION_NOT_FOUND):
        await host.call(calling("b", session="never"))


async def test_a_lease_that_is_not_renewed_ends_the_session(
    monkeypatch: pytest.MonkeyPatch,
    counter: Counter,
    until: Callable[[Callable[[], bool]], Awaitable[None]],
) -> None:
    monkeypatch.setattr(toolsvc.host, "REAP_SECONDS", 0.02)
    async with Host([counter]) as host:
        await host.open(opening("short", lease=0.15))
        await host.open(opening("long", lease=0.15))
        await host.open(opening("other", owner="p", lease=0.15))
        leases = host.renew("o", 60.0, ["long", "short", "gone"])
        assert leases.lost == ("gone",)
        assert set(leases.held) == {"short", "long"}
        await until(lambda: counter.closed == ["other"])
        assert set(host.session_ids) == {"short", "long"}
        assert host.renew("p", 60.0, ["other"]).lost == ("other",)
        with refused(Reason.SESSION_CLOSED):
            await host.call(calling("a", session="other"))


async def test_a_full_service_says_when_to_come_back(counter: Counter) -> None:
    async with Host([counter], max_sessions=1) as host:
        await host.open(opening("s"))
        with refused(Reason.TOO_MANY_SESSIONS) as failure:
            await host.open(opening("t"))
        assert failure.value.retry_after is not None
        await host.close("s")
        await host.open(opening("t"))


async def test_draining_begins_nothing_and_lets_what_runs_end(host: Host, counter: Counter) -> None:
    await host.open(opening())
    await host.call(calling("done"))
    running = asyncio.create_task(host.call(calling("a", 0.2)))
    await asyncio.sleep(0.02)
    draining = asyncio.create_task(host.drain(5.0))
    await asyncio.sleep(0)
    with refused(Reason.DRAINING):
        await host.call(calling("b"))
    with refused(Reason.DRAINING):
        await host.open(opening("t"))
    assert said(await host.call(calling("done"))) == "1"
    assert said(await running) == "2"
    await draining


async def test_leaving_the_host_closes_every_state(counter: Counter) -> None:
    async with Host([counter]) as host:
        for name in "abc":
            await host.open(opening(name))
        caller = asyncio.create_task(host.call(calling("x", 10, session="a")))
        await asyncio.sleep(0.02)
    assert sorted(counter.closed) == ["a", "b", "c"]
    with refused(Reason.SESSION_CLOSED):
        await caller


async def test_a_tool_that_cannot_open_leaves_no_session() -> None:
    counter = Counter()

    class Broken(Counter):
        name = "broken"

        async def open(self, session: SessionInfo) -> list[Any]:
            raise OSError("no disk")

    async with Host([counter, Broken()]) as host:
        with pytest.raises(OSError, match="no disk"):
            await host.open(opening())
        assert host.session_ids == []
        assert counter.closed == ["s"]


async def test_opening_has_a_queue_limit_too() -> None:
    class Slow(Counter):
        name = "slow"

        async def open(self, session: SessionInfo) -> list[Any]:
            await asyncio.Event().wait()
            return []

    counter = Counter()
    async with Host([counter, Slow()]) as host:
        with refused(Reason.QUEUE_LIMIT) as failure:
            await host.open(opening(queue_limit=0.05))
        assert failure.value.retry_after is not None
        assert host.session_ids == []
        assert counter.closed == ["s"]


async def test_a_retry_joins_an_opening_that_fails_until_its_states_are_closed() -> None:
    closes, may_close = asyncio.Event(), asyncio.Event()

    class Slow(Counter):
        async def close(self, state: list[Any]) -> None:
            closes.set()
            await may_close.wait()
            await super().close(state)

    class Broken(Counter):
        name = "broken"

        async def open(self, session: SessionInfo) -> list[Any]:
            raise OSError("no disk")

    tool = Slow()
    async with Host([tool, Broken()]) as host:
        first = asyncio.create_task(host.open(opening()))
        await closes.wait()
        retry = asyncio.create_task(host.open(opening()))
        await asyncio.sleep(0)
        may_close.set()
        for attempt in (first, retry):
            with pytest.raises(OSError, match="no disk"):
                await attempt
        assert tool.closed == ["s"]
        assert host.session_ids == []


async def test_what_fails_before_a_call_begins_leaves_its_id_free() -> None:
    class Unprepared(Counter):
        prepared = False

        def ready(self, state: list[Any]) -> bool:
            return False

        async def prepare(self, state: list[Any]) -> None:
            if not self.prepared:
                raise OSError("too many open files")

    tool = Unprepared()
    async with Host([tool]) as host:
        await host.open(opening())
        with refused(Reason.INTERNAL):
            await host.call(calling("a"))
        tool.prepared = True
        answer = await host.call(calling("a"))
        assert isinstance(answer, Recorded)
        assert tool.calls == 1


async def test_opening_again_never_shortens_the_lease(host: Host) -> None:
    await host.open(opening("long", lease=100.0))
    await host.open(opening("long", lease=0.001))
    await host.open(opening("short", lease=0.001))
    async with asyncio.timeout(30):
        while "short" in host.session_ids:  # noqa: ASYNC110 - the reaper tells nobody
            await asyncio.sleep(0.01)
    assert host.session_ids == ["long"]


async def test_a_fault_of_the_host_is_told_and_the_id_stays_taken() -> None:
    class Faulty(Counter):
        name = "faulty"

        async def run(self, *_: object) -> Result:
            self.calls += 1
            raise ZeroDivisionError("ours")

    faulty = Faulty()
    async with Host([faulty]) as host:
        await host.open(opening())
        for _ in range(2):
            with refused(Reason.INTERNAL):
                await host.call(calling("a", tool="faulty"))
        assert faulty.calls == 1


async def test_a_close_goes_on_without_its_caller() -> None:
    closes, may_close = asyncio.Event(), asyncio.Event()

    class Slow(Counter):
        async def close(self, state: list[Any]) -> None:
            closes.set()
            await may_close.wait()
            await super().close(state)

    tool = Slow()
    async with Host([tool]) as host:
        await host.open(opening())
        closing = asyncio.create_task(host.close("s"))
        await closes.wait()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        may_close.set()
    assert tool.closed == ["s"]


async def test_a_session_may_end_before_its_call_has_begun(host: Host, counter: Counter) -> None:
    await host.open(opening())
    caller = asyncio.create_task(host.call(calling("a")))
    closer = asyncio.create_task(host.close("s"))
    async with asyncio.timeout(10):
        with refused(Reason.SESSION_CLOSED):
            await caller
    assert await closer
    assert counter.calls == 0


async def test_observations_are_bounded_for_every_tool() -> None:
    class Long(Counter):
        name = "long"
        keep = "tail"

        async def call(self, state: list[Any], call: Call) -> str:
            return "a" * 1000 + "\x00end"

    async with Host([Long()], observation_limit=100) as host:
        await host.open(opening())
        answer = await host.call(calling("a", tool="long"))
        assert isinstance(answer, Recorded)
        assert answer.result.truncated
        assert said(answer).endswith("aend")
        assert len(said(answer)) < 100


async def test_a_large_image_is_held_with_its_session() -> None:
    class Camera(Tool):
        name = "camera"
        media = True

        async def call(self, state: None, call: Call) -> Media:
            return Media(media_type="image/png", data=b"x" * (INLINE_BYTES + 1))

    async with Host([Camera()]) as host:
        await host.open(opening())
        first = await host.call(calling("a", tool="camera"))
        assert await host.call(calling("a", tool="camera")) == first
        assert isinstance(first, Recorded)
        (blob,) = first.result.observation
        assert isinstance(blob, BlobRef)
        assert len(host.blob(blob.sha256)) == blob.size
        await host.close("s")
        with refused(Reason.BLOB_NOT_FOUND):
            host.blob(blob.sha256)


class Album(Tool):
    """Shows the task's media."""

    name = "album"
    media = True

    async def open(self, session: SessionInfo) -> list[Media]:
        return list(session.blobs.values())

    async def call(self, state: list[Media], call: Call) -> Result:
        return Result.of(*state)


async def put(host: Host, data: bytes) -> BlobRef:
    name = hashlib.sha256(data).hexdigest()
    with host.take_in(BlobRef(sha256=name, media_type="image/png", size=len(data))) as upload:
        await upload.add(data)
        return await upload.finish()


async def test_the_media_of_a_task_are_its_session_s() -> None:
    async with Host([Album()]) as host:
        blobs = tuple([await put(host, data) for data in (b"front", b"back")])
        with refused(Reason.BLOB_NOT_FOUND):
            missing = BlobRef(sha256="0" * 64, media_type="", size=1)
            await host.open(opening(blobs=(*blobs, missing)))
        assert host.session_ids == []
        await host.open(opening(blobs=blobs))
        shown = await host.call(calling("a", tool="album"))
        assert isinstance(shown, Recorded)
        assert [part.data for part in shown.result.observation if isinstance(part, Media)] == [
            b"front",
            b"back",
        ]


async def test_media_of_tasks_go_with_their_session_or_unclaimed(
    monkeypatch: pytest.MonkeyPatch, until: Callable[[Callable[[], bool]], Awaitable[None]]
) -> None:
    monkeypatch.setattr(toolsvc.task_blobs, "UNCLAIMED_SECONDS", 0.0)
    monkeypatch.setattr(toolsvc.host, "REAP_SECONDS", 0.01)
    async with Host([Album()]) as host:
        blob = await put(host, b"front")
        await host.open(opening(blobs=(blob,)))
        await put(host, b"never named")
        await until(lambda: host.blob_bytes == toolsvc.task_blobs.LEAST_BYTES)
        assert host.blob(blob.sha256) == b"front"
        await host.close("s")
        assert host.blob_bytes == 0


async def test_a_session_that_does_not_open_holds_no_media(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(Album):
        async def open(self, session: SessionInfo) -> list[Media]:
            raise RuntimeError("it does not open")

    monkeypatch.setattr(toolsvc.task_blobs, "UNCLAIMED_SECONDS", 0.0)
    async with Host([Broken()]) as host:
        blob = await put(host, b"front")
        with pytest.raises(RuntimeError):
            await host.open(opening(blobs=(blob,)))
        assert host.blob_bytes == 0


async def test_a_service_that_stops_takes_no_media() -> None:
    async with Host([Album()]) as host:
        await host.drain(0)
        with refused(Reason.DRAINING):
            await put(host, b"front")
