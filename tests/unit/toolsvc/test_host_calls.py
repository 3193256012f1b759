"""Calls: their ids, order, limits and ends, with tools that need no sandbox."""

import asyncio

import pytest

import toolsvc.host.admission
import toolsvc.host.host
import toolsvc.host.task_blobs
import toolsvc.host.turnstile
from tests.support.hosts import Counter, Parallel, calling, opening, refused, said
from toolsvc.errors import Reason
from toolsvc.host.host import Host
from toolsvc.plugin.tool import InProcess, LiveState, Tool
from toolsvc.types import Call, CallRequest, Recorded, Result, Running, SessionInfo
from toolwright.types import ToolErrorKind


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


async def test_an_answer_comes_within_the_longest_wait_however_long_one_would_wait(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolsvc.host.host, "LONGEST_WAIT", 0.05)
    await host.open(opening())
    async with asyncio.timeout(5):
        assert isinstance(await host.call(calling("a", 30, wait=3600.0)), Running)


async def test_a_caller_that_goes_away_does_not_stop_the_call(host: Host, counter: Counter) -> None:
    await host.open(opening())
    caller = asyncio.create_task(host.call(calling("a", 0.2)))
    await counter.runs.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert said(await host.call(calling("a", 0.2))) == "1"
    assert counter.calls == 1


async def test_the_run_limit_is_a_result(host: Host) -> None:
    await host.open(opening())
    answer = await host.call(calling("a", 5, run_limit=0.05))
    assert answer.result.error.kind is ToolErrorKind.TIMEOUT
    assert 0.04 < answer.run < 2
    assert await host.call(calling("a", 5, run_limit=0.05)) == answer


async def test_a_call_that_names_no_run_limit_has_its_tools() -> None:
    class Hurried(Counter):
        run_limit = 0.05

    async with Host([Hurried()]) as host:
        await host.open(opening())
        answer = await host.call(calling("a", 5, run_limit=0.0))
    assert isinstance(answer, Recorded)
    assert answer.result.error is not None
    assert answer.result.error.kind is ToolErrorKind.TIMEOUT


async def test_the_queue_limit_is_a_refusal_and_leaves_the_id_free(
    host: Host, counter: Counter
) -> None:
    await host.open(opening())
    first = asyncio.create_task(host.call(calling("a", 0.4)))
    await counter.runs.wait()
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

    monkeypatch.setattr(toolsvc.host.admission, "HOLD_SECONDS", 60.0)
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
    host: Host, counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolsvc.host.turnstile, "WAITING_CALLS", 2)
    await host.open(opening())
    waiting = [asyncio.create_task(host.call(calling(str(i), 0.1))) for i in range(3)]
    await counter.runs.wait()
    with refused(Reason.SESSION_BUSY) as failure:
        await host.call(calling("one too many"))
    assert failure.value.retry_after is not None
    await asyncio.gather(*waiting)


async def test_calls_that_gave_up_waiting_leave_room_for_others(
    host: Host, counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolsvc.host.turnstile, "WAITING_CALLS", 2)
    await host.open(opening())
    first = asyncio.create_task(host.call(calling("a", 10)))
    await counter.runs.wait()
    for _ in range(4):
        with refused(Reason.QUEUE_LIMIT):
            await host.call(calling("b", queue_limit=0.01))
    last = asyncio.create_task(host.call(calling("b")))
    await asyncio.sleep(0)
    assert host.cancel("s", "a")
    await first
    assert said(await last) == "2"


async def test_a_session_runs_only_so_many_calls_of_a_parallel_tool_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(toolsvc.host.turnstile, "PARALLEL_CALLS", 2)
    monkeypatch.setattr(toolsvc.host.turnstile, "WAITING_CALLS", 1)
    tool = Parallel()
    async with Host([tool]) as host:
        await host.open(opening())
        await host.open(opening("t"))

        def request(name: str, seconds: float = 0, session: str = "s") -> CallRequest:
            return calling(name, seconds, session, tool="parallel")

        running = [host.begin(request(name, 10)) for name in "ab"]
        host.begin(request("c"))
        await asyncio.sleep(0)  # each has come as far as it can
        with refused(Reason.SESSION_BUSY):
            await host.call(request("d"))
        assert tool.calls == 2
        assert said(await host.call(request("a", session="t"))) == "1"  # another session
        assert host.cancel("s", "a")
        assert said(await host.call(request("c"))) == "3"
        assert host.cancel("s", "b")
        for one in running:
            await one.wait(5.0)


async def test_cancelling_a_running_and_a_queued_call(host: Host, counter: Counter) -> None:
    await host.open(opening())
    running = asyncio.create_task(host.call(calling("a", 10)))
    queued = asyncio.create_task(host.call(calling("b", 10)))
    await counter.runs.wait()
    assert host.cancel("s", "b")
    assert host.cancel("s", "a")
    for task in (running, queued):
        answer = await task
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
    assert answer.result.error.kind is ToolErrorKind.CANCELLED
    assert counter.calls == 0


async def test_an_action_that_makes_no_sense_is_a_result(host: Host, counter: Counter) -> None:
    await host.open(opening())
    answer = await host.call(calling("a", arguments=None, action="no block here"))
    assert not answer.result.valid
    assert "<counter>" in answer.result.invalid_reason
    assert counter.calls == 0


async def test_what_fails_before_a_call_begins_leaves_its_id_free() -> None:
    class Unready(LiveState):
        ready = False
        prepared = False

        async def prepare(self) -> None:
            if not self.prepared:
                raise OSError("too many open files")

    class Unprepared(Tool):
        name = "counter"
        calls = 0

        async def open(self, session: SessionInfo) -> Unready:
            return state

        async def call(self, state: Unready, call: Call) -> None:
            self.calls += 1

    state, tool = Unready(), Unprepared()
    async with Host([tool]) as host:
        await host.open(opening())
        with refused(Reason.INTERNAL):
            await host.call(calling("a"))
        state.prepared = True
        answer = await host.call(calling("a"))
        assert isinstance(answer, Recorded)
        assert tool.calls == 1


async def test_a_fault_of_the_host_is_told_and_the_id_stays_taken() -> None:
    class Faulty(Counter):
        name = "faulty"
        executor = InProcess

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
