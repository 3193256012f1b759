"""A pool against servers that lie: what they say is asked elsewhere, and nobody else suffers."""

from __future__ import annotations

import asyncio
import gc
from array import array
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from engine.core.sampler.control import WeightControl
from engine.core.sampler.policy_sampler import GenerateRequest
from engine.core.sampler.pool import SamplerPool
from engine.core.sampler.server import RequestInFlight
from engine.core.sampler.stops import StopTable
from engine.core.sampler.token_action import TokenAction
from engine.core.sampler.wire.stream import Stream
from engine.errors import SamplerFailed
from engine.types import Generated
from tests.support.codecs import END, ToyCodec
from tests.support.waiting import ToldClock, holds_for, until
from tests.unit.engine.test_sampler_wire import event
from toolwright.reading.action_ends import Tags
from toolwright.recipe import Sampler
from toolwright.types import FinishKind, FinishReason, SamplingParams, WeightVersion

CODEC = ToyCodec()
VERSION = WeightVersion(lineage="a", step=1)
STOP = CODEC.token_id(END) or 0
REPLY = [*CODEC.encode("so it is"), STOP]
Answer = Callable[[dict[str, Any]], bytes]


def sse(*payloads: bytes) -> bytes:
    return b"".join(b"data: " + payload + b"\n\n" for payload in payloads)


def truth(body: dict[str, Any]) -> bytes:
    """All of the reply that the request does not hold yet."""
    said = len(body["input_ids"]) - 3
    rest = REPLY[said:][: body["sampling_params"]["max_new_tokens"]]
    whole = len(rest) == len(REPLY) - said
    finish = {"type": "stop", "matched": STOP} if whole else {"type": "length"}
    pairs = [[-0.5, token, None] for token in rest]
    return sse(event(rest, len(rest), finish=finish, pairs=pairs), b"[DONE]")


def says(payload: bytes) -> Answer:
    return lambda _body: sse(payload)


class Server:
    """SGLang's wire as far as the pool asks it; `answers` to /generate, in turn."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = answers
        self.version = "default"
        self.aborted: list[str] = []
        self.asked: list[dict[str, Any]] = []
        self.gate: asyncio.Event | None = None
        self.loads: list[int] = []
        """Statuses of its next answers to /v1/loads; empty = it has no such route."""
        self.url = ""

    @asynccontextmanager
    async def running(self, port: int = 0) -> AsyncIterator[Server]:
        app = web.Application()
        for path in ("/pause_generation", "/continue_generation"):
            app.router.add_post(path, self._fine)
        app.router.add_get("/server_info", self._info)
        if self.loads:
            app.router.add_get("/v1/loads", self._loads)
        app.router.add_get("/model_info", self._model)
        app.router.add_post("/update_weights_from_disk", self._update)
        app.router.add_post("/generate", self._generate)
        app.router.add_post("/abort_request", self._abort)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _info(self, _request: web.Request) -> web.Response:
        return web.json_response({"incremental_streaming_output": True, "version": "0"})

    async def _loads(self, _request: web.Request) -> web.Response:
        status = self.loads.pop(0)
        return web.json_response({"loads": [{"max_total_num_tokens": 100}]}, status=status)

    async def _model(self, _request: web.Request) -> web.Response:
        return web.json_response({"weight_version": self.version})

    async def _update(self, request: web.Request) -> web.Response:
        self.version = (await request.json())["weight_version"]
        return web.json_response({"success": True})

    async def _fine(self, _request: web.Request) -> web.Response:
        return web.json_response({})

    async def _abort(self, request: web.Request) -> web.Response:
        self.aborted.append((await request.json()).get("rid", ""))
        return web.Response()

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        answer = self._answers[len(self.asked) % len(self._answers)]
        self.asked.append(body)
        if self.gate is not None:
            await self.gate.wait()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(answer(body))
        return response


@asynccontextmanager
async def pool_of(
    *servers: Server, codec: ToyCodec = CODEC, **table: Any
) -> AsyncIterator[SamplerPool]:
    """A pool whose servers are in order."""
    async with AsyncExitStack() as stack:
        for server in servers:
            await stack.enter_async_context(server.running())
        settings = Sampler(endpoints=tuple(server.url for server in servers), **table)
        made = SamplerPool(settings, codec, vocab_size=300)
        stack.push_async_callback(made.close)
        await made.open()
        await WeightControl(made, pause_mode="retract").initialise(VERSION, Path("/w"))
        yield made


async def test_a_server_that_stops_inside_a_string_goes_on() -> None:
    """Its stop is text of the call's JSON; the next request has it in its prompt."""
    close = "</tool_call>"
    codec = ToyCodec(close)
    reply = codec.encode(f'<tool_call>{{"name": "note", "arguments": {{"a": "{close}"}}}}{close}')
    token = codec.token_id(close)

    def answer(body: dict[str, Any]) -> bytes:
        said = len(body["input_ids"]) - 3
        rest = reply[said : reply.index(token, said) + 1]
        pairs = [[-0.5, one, None] for one in rest]
        finish = {"type": "stop", "matched": token}
        return sse(event(rest, len(rest), finish=finish, pairs=pairs), b"[DONE]")

    server = Server(answer)
    async with pool_of(server, codec=codec) as pool:
        table = StopTable([close, END], codec, json_calls=[Tags("<tool_call>", close)])
        generated = await ask(pool, stops=table, max_new_tokens=200)
    assert list(generated.token_ids) == reply
    assert generated.stop == close
    assert len(server.asked) == 2


async def test_a_server_with_older_weights_of_the_run_was_started_anew() -> None:
    """Nothing was in flight while it was away: the engine learns of it from its tokens."""
    later = WeightVersion(lineage=VERSION.lineage, step=VERSION.step + 1)

    def answer(body: dict[str, Any]) -> bytes:
        meta = {"pairs": [[-0.5, 7, None]], "finish": {"type": "length"}}
        return sse(event([7], 1, version=server.version, **meta), b"[DONE]")

    server = Server(answer)
    async with pool_of(server, patience_s=5.0) as pool:
        control = WeightControl(pool, pause_mode="retract")
        await control.initialise(VERSION, Path("/w"))
        await control.publish(later, Path("/w"))
        server.version = str(VERSION)  # another process, started with these weights
        keeping = asyncio.create_task(pool.keep_alive())
        try:
            generated = await ask(pool, max_new_tokens=1)
        finally:
            keeping.cancel()
        assert dict(generated.versions) == {later: 1}
        assert server.version == str(later)


async def test_many_streams_come_in_larger_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those of a client that reads along, those with marks, and those of a slow server."""
    monkeypatch.setattr("engine.core.sampler.routing.MANY_STREAMS", 3)
    server = Server(truth)
    async with pool_of(server, stream_interval=4) as pool:
        await ask(pool)  # shows the server's pace
        server.gate = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(ask(pool, f"t{number}"))
            await until(lambda: len(server.asked) == 6, "five streams")
            marked = StopTable([END], CODEC, marks=["</call>"])
            group.create_task(ask(pool, stops=marked))
            group.create_task(ask(pool, progress_ns=1))
            await until(lambda: len(server.asked) == 8, "two more")
            pool.router.measured(server.url, 1e6, 1)
            group.create_task(ask(pool))
            await until(lambda: len(server.asked) == 9, "the last")
            server.gate.set()
    chunks = [body["sampling_params"]["stream_interval"] for body in server.asked]
    assert chunks == [4, 4, 4, 4, 32, 32, 4, 4, 4]


async def ask(pool: SamplerPool, key: str = "t", **changes: Any) -> Generated:
    asked = {
        "key": key,
        "token_ids": array("i", [1, 2, 3]),
        "sampling": SamplingParams(),
        "max_new_tokens": 50,
        "stops": StopTable([END], CODEC),
        **changes,
    }
    return await pool.generate(GenerateRequest(**asked))


def failures(pool: SamplerPool, server: Server) -> dict[str, int]:
    return dict(pool.statistics()[server.url]["failures"])


def endless(_body: dict[str, Any]) -> bytes:
    return b"data: " + b"x" * (3 << 20)


def spoilt(field: str, value: object) -> Answer:
    """An event of two tokens, with one field of its second token, or of the event, changed."""
    body = orjson.loads(event([70, 71], 2, pairs=[[-0.5, 70, None], [-0.5, 71, None]]))
    if field == "token":
        body["output_ids"][1] = body["meta_info"]["output_token_logprobs"][1][1] = value
    elif field == "logprob":
        body["meta_info"]["output_token_logprobs"][1][0] = value
    else:
        body["meta_info"][field] = value
    return says(orjson.dumps(body))


LIES: dict[str, Answer] = {
    "-5": spoilt("token", -5),
    "id == vocab_size": spoilt("token", 300),
    "logprob -1e300": spoilt("logprob", -1e300),
    "logprob null": spoilt("logprob", None),
    "logprob NaN": says(event([70], 1, pairs=[["?", 70, None]]).replace(b'"?"', b"NaN")),
    "endless event": endless,
    "too many tokens": says(event([70] * 60, 60)),
    "JSON bomb": says(b'{"x":' + b"[" * 200_000),
    "no fields": says(b"{}"),
    "finish_reason": spoilt("finish_reason", "stop"),
    "spans": spoilt("weight_versions", [{"version": "a.1", "start": 0, "end": 9**9}]),
    "no HTTP": lambda _body: b"\x00" * 9000,
}


def begins_and_lies(body: dict[str, Any]) -> bytes:
    pairs = [[-0.5, token, None] for token in REPLY[:3]]
    return sse(event(REPLY[:3], 3, pairs=pairs)) + LIES["-5"](body)


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
async def test_a_lie_is_asked_elsewhere_and_ends_no_other_stream(
    lie: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two streams of the liar are open while it lies; one of them tells the truth."""
    monkeypatch.setattr("engine.core.sampler.wire.stream.MAX_EVENT_BYTES", 1 << 20)
    liar, honest = Server(lie, truth), Server(truth)
    liar.gate, honest.gate = asyncio.Event(), asyncio.Event()
    async with pool_of(liar, honest) as pool:
        asking = [asyncio.create_task(ask(pool, f"t{number}")) for number in range(4)]
        async with asyncio.timeout(10):
            await until(lambda: len(liar.asked) + len(honest.asked) == 4, "all requests")
            assert len(liar.asked) == 2
            liar.gate.set()
            honest.gate.set()
            for generated in await asyncio.gather(*asking):
                assert list(generated.token_ids) == REPLY
                assert list(generated.logprobs) == [-0.5] * len(REPLY)
                assert generated.versions == ((VERSION, len(REPLY)),)
                assert generated.stop == END
        assert sum(failures(pool, liar).values()) == 1
        assert set(failures(pool, liar)) <= {"malformed", "broken"}
        assert failures(pool, honest) == {}
        assert len(liar.asked) == 2
        assert pool.statistics()[liar.url]["up"]


async def test_tokens_that_came_before_a_lie_are_kept() -> None:
    server = Server(begins_and_lies, truth)
    async with pool_of(server) as pool:
        generated = await ask(pool)
    assert list(generated.token_ids) == REPLY
    first, second = server.asked
    assert second["input_ids"] == [1, 2, 3, *REPLY[:3]]
    assert second["sampling_params"]["max_new_tokens"] == 47
    assert len({body["rid"] for body in server.asked}) == 2
    assert len({len(body["rid"]) for body in server.asked}) == 1
    assert first["rid"] in server.aborted


async def test_a_request_that_one_server_refuses_is_asked_of_the_other() -> None:
    refusal = says(b'{"error": {"message": "too long for me", "retryable": false}}')
    small, large = Server(refusal), Server(truth)
    async with pool_of(small, large) as pool:
        done = await asyncio.gather(*(ask(pool, f"t{number}") for number in range(4)))
        assert all(list(generated.token_ids) == REPLY for generated in done)
        assert failures(pool, small).get("refused", 0) >= 1
    async with pool_of(Server(refusal)) as pool:
        with pytest.raises(SamplerFailed, match="too long for me") as caught:
            await ask(pool)
    assert caught.value.permanent


async def test_what_an_earlier_life_has_is_not_asked_again() -> None:
    server = Server(truth)
    received = Generated(
        token_ids=array("i", REPLY[:4]),
        logprobs=array("f", [-0.25] * 4),
        versions=((WeightVersion(lineage="a", step=0), 4),),
        finish=FinishReason(kind=FinishKind.CONTINUED),
    )
    told: list[Generated] = []
    async with pool_of(server) as pool:
        generated = await ask(pool, received=received, on_action=told.append)
        whole = await ask(pool, received=received, max_new_tokens=4)
    assert [body["input_ids"] for body in server.asked] == [[1, 2, 3, *REPLY[:4]]]
    assert server.asked[0]["sampling_params"]["max_new_tokens"] == 46
    assert list(generated.token_ids) == REPLY
    assert [count for _, count in generated.versions] == [4, len(REPLY) - 4]
    assert told == [generated]
    assert whole.finish.kind is FinishKind.LENGTH
    assert list(whole.token_ids) == REPLY[:4]


async def test_a_prompt_outside_the_vocabulary_is_not_sent() -> None:
    server = Server(truth)
    async with pool_of(server) as pool:
        for wrong in (-1, 300):
            with pytest.raises(SamplerFailed, match=f"token id {wrong} ") as caught:
                await ask(pool, token_ids=array("i", [1, wrong]))
            assert caught.value.permanent
    assert server.asked == []


async def test_the_clock_stands_still_from_the_last_token_before_a_fault_to_the_next() -> None:
    clock = ToldClock()
    lie = LIES["-5"]
    async with pool_of(Server(begins_and_lies, lie, lie, truth)) as pool:
        began = asyncio.get_running_loop().time()
        await ask(pool, clock=clock)
    since, go_on = clock.told
    assert since is not None
    assert began <= since < began + 0.2
    assert go_on is None


async def test_while_no_server_is_up_an_action_waits_and_the_clock_stands_still() -> None:
    clock = ToldClock()
    server = Server(truth)
    async with pool_of(server, patience_s=0.1) as pool:
        pool.mark_down(pool.servers[0], "a test")
        asking = asyncio.create_task(ask(pool, clock=clock))
        await holds_for(0.3, lambda: not asking.done(), "the action to wait for a server")
        assert not asking.done()
        assert len(clock.told) == 1
        assert pool.statistics()[server.url]["why"] == "a test"
        pool.mark_up(pool.servers[0])
        assert list((await asking).token_ids) == REPLY
    assert clock.told[1:] == [None]


async def test_a_first_look_counts_answers_and_missing_routes_but_no_passing_fault() -> None:
    old, new = Server(), Server()
    new.loads = [503, 200]
    async with pool_of(old, new) as pool:
        assert await pool.look() == []
        assert not pool.loads_answered
        (load,) = await pool.look()
        assert load.cache_tokens == 100
        assert pool.loads_answered
        for server in pool.servers:
            pool.mark_down(server, "a test")
        assert not pool.loads_answered


async def test_an_action_leaves_nothing_to_the_garbage_collector() -> None:
    """At thousands of trajectories a collection stops all of them for a second."""
    async with pool_of(Server(truth)) as pool:
        await ask(pool)
        gc.collect()
        gc.disable()
        try:
            for _ in range(10):
                await ask(pool, on_mark=lambda _ids, _hit, _ns: None)
            ours = (RequestInFlight, TokenAction, Stream)
            left = [kind for kind in map(type, gc.get_objects()) if kind in ours]
        finally:
            gc.enable()
    assert left == []
