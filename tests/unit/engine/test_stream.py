"""The hot path's HTTP: what a server may do to a stream, and what the client makes of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest

from engine.core.sampler.wire.client import (
    SamplerClient,
    ServerRefused,
    ServerSilent,
    ServerUnreachable,
)
from engine.core.sampler.wire.events import Chunk, ChunkReader, WireError
from engine.core.sampler.wire.stream import (
    MAX_ERROR_BYTES,
    ReadTurn,
    StatusError,
    Stream,
    StreamBroken,
    StreamingHttp,
    _Connection,
)
from tests.support.net import free_port
from tests.unit.engine.test_sampler_wire import event

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
Play = Callable[[asyncio.StreamWriter], Awaitable[None]]


def piece(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def events(*payloads: bytes) -> bytes:
    return piece(b"".join(b"data: " + payload + b"\n\n" for payload in payloads))


FINAL = event([3], 3, finish={"type": "stop", "matched": 3})
WHOLE = HEAD + events(event([1, 2], 2), FINAL, b"[DONE]") + b"0\r\n\r\n"


@asynccontextmanager
async def server(*plays: Play) -> AsyncIterator[tuple[str, list[int]]]:
    """(URL, requests a connection): request number n is answered by `plays[n]`, then the last."""
    served: list[int] = []
    count = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        mine = len(served)
        served.append(0)
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                served[mine] += 1
                play, count = plays[min(count, len(plays) - 1)], count + 1
                await play(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", served
    finally:
        listening.close()


def says(data: bytes) -> Play:
    async def play(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return play


def says_and_resets(data: bytes) -> Play:
    async def play(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.transport.abort()

    return play


async def falls_silent(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + events(event([1, 2], 2)))
    await asyncio.sleep(30)


@asynccontextmanager
async def client(url: str, silence: float = 5.0) -> AsyncIterator[SamplerClient]:
    async with aiohttp.ClientSession() as session:
        made = SamplerClient(url, session, silence=silence)
        yield made
        made.close()


async def chunks(sampler: SamplerClient, *, stop_after: int = 99) -> list[Chunk]:
    got: list[Chunk] = []

    def take(chunk: Chunk, read_ns: int) -> bool:
        assert read_ns > 0
        got.append(chunk)
        return len(got) < stop_after

    reader = ChunkReader(incremental=True, vocab_size=100, max_new_tokens=100)
    await sampler.open_stream(reader=reader, on_chunk=take).read({"rid": "r"})
    return got


async def test_a_whole_stream_and_the_connection_serves_again() -> None:
    async with server(says(WHOLE)) as (url, served), client(url) as sampler:
        for _ in range(3):
            got = await chunks(sampler)
            assert [list(c.token_ids) for c in got] == [[1, 2], [3]]
            assert got[-1].finish is not None
    assert served == [3]


async def test_streams_at_the_same_time_have_connections_of_their_own() -> None:
    async def slow(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.02)
        await says(WHOLE)(writer)

    async with server(slow) as (url, served), client(url) as sampler:
        await asyncio.gather(*(chunks(sampler) for _ in range(4)))
    assert served == [1, 1, 1, 1]


async def test_stopping_ends_the_stream_at_once() -> None:
    async with server(falls_silent) as (url, _), client(url) as sampler:
        async with asyncio.timeout(2):
            assert len(await chunks(sampler, stop_after=1)) == 1


async def test_nothing_is_handed_on_after_the_stop() -> None:
    both = says(HEAD + events(event([1], 1), event([2], 2), event([4], 3)))
    async with server(both) as (url, _), client(url) as sampler:
        assert len(await chunks(sampler, stop_after=1)) == 1


@pytest.mark.parametrize(
    "data", [b"", HEAD, HEAD + events(event([1, 2], 2)), WHOLE.replace(FINAL, event([3], 3))]
)
async def test_a_stream_without_its_finish_is_broken(data: bytes) -> None:
    async with server(says_and_resets(data)) as (url, _), client(url) as sampler:
        with pytest.raises(ServerUnreachable):
            await chunks(sampler)


async def test_a_connection_that_breaks_after_the_finish_breaks_nothing() -> None:
    """All tokens are there: to ask again would generate beyond the stop."""
    data = HEAD + events(event([1, 2], 2), FINAL)
    async with server(says_and_resets(data)) as (url, _), client(url) as sampler:
        got = await chunks(sampler)
    assert [list(c.token_ids) for c in got] == [[1, 2], [3]]


async def test_silence_has_an_end() -> None:
    async with server(falls_silent) as (url, _), client(url, silence=0.1) as sampler:
        with pytest.raises(ServerUnreachable, match="silent for"):
            await chunks(sampler)


async def test_a_stream_that_trickles_is_not_silent() -> None:
    async def trickle(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for number in range(1, 9):
            writer.write(events(event([1], number)))
            await asyncio.sleep(0.05)
        writer.write(events(event([1], 9, finish={"type": "length"}), b"[DONE]") + b"0\r\n\r\n")

    async with server(trickle) as (url, _), client(url, silence=0.2) as sampler:
        assert len(await chunks(sampler)) == 9


async def test_statuses() -> None:
    def status(code: int) -> Play:
        return says(b"HTTP/1.1 %d X\r\nContent-Length: 4\r\n\r\nwhy?" % code)

    async with server(status(400), status(503), says(WHOLE)) as (url, _), client(url) as sampler:
        with pytest.raises(ServerRefused, match="400: why"):
            await chunks(sampler)
        with pytest.raises(WireError, match="503: why"):
            await chunks(sampler)
        assert len(await chunks(sampler)) == 2


async def test_what_is_no_http() -> None:
    async with server(says(b"SSH-2.0-OpenSSH\r\n\r\n")) as (url, _), client(url) as sampler:
        with pytest.raises(ServerUnreachable):
            await chunks(sampler)


async def test_nobody_there() -> None:
    async with client(f"http://127.0.0.1:{free_port()}") as sampler:
        with pytest.raises(ServerUnreachable, match="no connection"):
            await chunks(sampler)


async def test_what_the_callback_raises_arrives() -> None:
    def fault(_payload: bytes, _read_ns: int) -> bool:
        raise KeyError("fault")

    async with server(says(WHOLE)) as (url, _):
        http = StreamingHttp(url, "/generate", silence=5)
        with pytest.raises(KeyError, match="fault"):
            await http.post(b"{}", Stream(fault))


async def test_bytes_that_nobody_asked_for_end_an_idle_connection() -> None:
    chatty = says(WHOLE + b"HTTP/1.1 408 Timeout\r\n\r\n")
    async with server(chatty) as (url, served):
        http = StreamingHttp(url, "/generate", silence=5)
        for _ in range(2):
            got: list[bytes] = []
            await http.post(b"{}", Stream(lambda payload, _ns, got=got: not got.append(payload)))  # type: ignore[misc]
            await asyncio.sleep(0.02)
            assert got[-1] == b"[DONE]"
        http.close()
    assert sum(served) == 2


async def test_a_cancelled_stream_hangs_up() -> None:
    came, gone = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        came.set()
        await reader.read()  # to the end of what the client says
        gone.set()
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    http = StreamingHttp(url, "/generate", silence=5)
    task = asyncio.create_task(http.post(b"{}", Stream(lambda _payload, _read_ns: True)))
    async with asyncio.timeout(5):
        await came.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(5):
        await gone.wait()
    listening.close()


async def test_bytes_that_never_become_an_event_are_silence() -> None:
    async def drips(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for _ in range(100):
            writer.write(piece(b"data: x"))
            await asyncio.sleep(0.02)

    async with server(drips) as (url, _), client(url, silence=0.2) as sampler:
        with pytest.raises(ServerSilent):
            async with asyncio.timeout(1.5):
                await chunks(sampler)


async def test_a_quiet_stream_is_told_once_and_again_after_an_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.core.sampler.wire.stream.QUIET_SECONDS", 0.1)
    monkeypatch.setattr("engine.core.sampler.wire.stream.LOOK_SECONDS", 0.02)

    async def halts(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for number in range(1, 3):
            await asyncio.sleep(0.25)
            writer.write(events(event([1], number)))
        writer.write(events(FINAL, b"[DONE]") + b"0\r\n\r\n")

    told: list[float] = []
    async with server(halts) as (url, _), client(url) as sampler:
        began = asyncio.get_running_loop().time()
        reader = ChunkReader(incremental=True, vocab_size=100, max_new_tokens=100)
        stream = sampler.open_stream(
            reader=reader, on_chunk=lambda _chunk, _ns: True, on_quiet=told.append
        )
        await stream.read({"rid": "r"})
    assert len(told) == 2
    assert told[0] - began < 0.05 < 0.2 < told[1] - began


async def test_a_stream_can_be_left_before_and_while_it_is_read() -> None:
    async with server(falls_silent) as (url, _), client(url) as sampler:
        for early in (True, False):
            reader = ChunkReader(incremental=True, vocab_size=100, max_new_tokens=100)
            stream = sampler.open_stream(reader=reader, on_chunk=lambda _chunk, _ns: True)
            if early:
                stream.end(KeyError("left"))
            reading = asyncio.create_task(stream.read({"rid": "r"}))
            if not early:
                await asyncio.sleep(0.05)
                stream.end(KeyError("left"))
            async with asyncio.timeout(2):
                with pytest.raises(KeyError, match="left"):
                    await reading


async def test_a_refusal_without_end_is_cut() -> None:
    huge = b"x" * (8 * MAX_ERROR_BYTES)
    play = says(b"HTTP/1.1 400 X\r\nContent-Length: %d\r\n\r\n%s" % (len(huge), huge))
    async with server(play) as (url, _):
        http = StreamingHttp(url, "/generate", silence=5)
        with pytest.raises(StatusError) as caught:
            await http.post(b"{}", Stream(lambda _payload, _ns: True))
    assert len(caught.value.text) <= MAX_ERROR_BYTES


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
async def test_a_status_that_passes_is_no_refusal(status: int) -> None:
    play = says(b"HTTP/1.1 %d X\r\nContent-Length: 4\r\n\r\nwait" % status)
    async with server(play) as (url, _), client(url) as sampler:
        with pytest.raises(WireError, match="wait") as caught:
            await chunks(sampler)
    assert caught.value.retryable


async def test_reads_beyond_their_time_wait_for_the_others_and_stay_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[bytes | str] = []

    def slowly(payload: bytes, _read_ns: int) -> bool:
        seen.append(payload)
        time.sleep(0.002)
        return True

    monkeypatch.setattr("engine.core.sampler.wire.stream.READ_NS", 1_000_000)
    turn = ReadTurn()
    connection = _Connection(turn)
    connection.connection_made(_Deaf())
    done = connection.begin(b"", Stream(slowly))
    connection.data_received(HEAD + events(b"1"))
    connection.data_received(events(b"2"))
    connection.data_received(events(b"3"))
    assert seen == [b"1"]
    asyncio.get_running_loop().call_soon(seen.append, "others")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert seen == [b"1", b"2", b"3", "others"]
    connection.data_received(events(b"4"))  # another turn
    connection.data_received(events(b"5"))
    connection.connection_lost(None)  # what was read before is handed on before the failure
    assert seen[4:] == [b"4", b"5"]
    with pytest.raises(StreamBroken):
        await done


class _Deaf(asyncio.Transport):
    def write(self, data: object) -> None:
        pass

    def is_closing(self) -> bool:
        return False
