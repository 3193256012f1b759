"""What any sampler of SGLang's native wire must do, as checks that run against a live one.

Owns the checks; each takes a `Target`, leaves the sampler running and unpaused, and asserts only
what a client may rely on. The same list runs against the scripted sampler and against the real
server, so that the one never promises what the other does not keep. Knows neither how a sampler is
started nor what it says.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.contract import schema
from tests.contract.client import Stream, WireClient

PROMPT = [5, 6, 7, 8] * 4
VOCABULARY = 512
SETTLE_S = 0.3
"""Long enough for a chunk on its way to arrive on a busy machine."""
DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A running sampler, two weight folders it can load, and the shape of its streams."""

    client: WireClient
    weights: tuple[Path, Path]
    incremental: bool
    serial: itertools.count[int] = field(default_factory=itertools.count)

    def body(self, name: str, /, max_new_tokens: int = 2000, **changes: Any) -> dict[str, Any]:
        """A request whose id is a prefix of no other; `params` is merged into the sampling ones."""
        params = {
            "max_new_tokens": max_new_tokens,
            "temperature": 1.0,
            "ignore_eos": True,
            **changes.pop("params", {}),
        }
        return {
            "rid": f"{name}-{next(self.serial):06d}",
            "input_ids": PROMPT,
            "return_logprob": True,
            "sampling_params": params,
            **changes,
        }

    async def abort(self, rid: str) -> None:
        """Abort by id."""
        assert (await self.client.post("/abort_request", {"rid": rid}))[0] == 200

    async def version(self) -> str:
        """The weight version that the server reports."""
        version: str = (await self.client.get("/model_info"))[1]["weight_version"]
        return version

    @asynccontextmanager
    async def paused(self, mode: str) -> AsyncIterator[None]:
        """A pause that always ends."""
        status, answer = await self.client.post("/pause_generation", {"mode": mode})
        assert (status, answer["status"]) == (200, "ok")
        try:
            yield
        finally:
            status, answer = await self.client.post("/continue_generation")
            assert (status, answer["status"]) == (200, "ok")

    async def until_running(self, count: int) -> None:
        """Wait until the server reports this many running replies."""
        async with asyncio.timeout(10):
            while await self._running() != count:  # noqa: ASYNC110 - it has no event to wait for
                await asyncio.sleep(0.05)

    async def _running(self) -> int:
        running: int = (await self.client.get("/v1/loads"))[1]["loads"][0]["num_running_reqs"]
        return running

    def check_whole(self, stream: Stream) -> None:
        """A stream that ended by itself: totals, ids, log-probs and versions agree."""
        assert (stream.status, stream.done) == (200, True)
        for event in stream.events:
            schema.check_answer(event)
        assert all(e["meta_info"]["finish_reason"] is None for e in stream.events[:-1])
        meta = stream.last["meta_info"]
        ids = stream.ids(incremental=self.incremental)
        assert meta["completion_tokens"] == len(ids)
        triples = stream.logprobs(incremental=self.incremental)
        assert [token_id for _, token_id, _ in triples] == ids
        assert all(isinstance(logprob, float) and logprob <= 0 for logprob, _, _ in triples)
        assert meta["output_token_logprobs_length"] == len(ids)
        spans_cover(meta["weight_versions"], len(ids))
        assert meta["weight_version"] == meta["weight_versions"][-1]["version"]
        assert meta["e2e_latency"] > 0


def spans_cover(spans: list[dict[str, Any]], total: int) -> None:
    """The spans cover [0, total) without gaps."""
    assert [s["start"] for s in spans] == [0, *(s["end"] for s in spans[:-1])]
    assert spans[-1]["end"] == total


async def finished(task: asyncio.Task[Stream]) -> Stream:
    """The stream's end, within the deadline."""
    async with asyncio.timeout(DEADLINE_S):
        return await task


# ---- the answer ----


async def check_stream_shape(t: Target) -> None:
    """Every event is SGLang's own, and the events add up to the reply."""
    body = t.body("shape", 8)
    stream = await t.client.stream(body)
    t.check_whole(stream)
    assert stream.finish == {"type": "length", "length": 8}
    assert len(stream.ids(incremental=t.incremental)) == 8
    for event in stream.events:
        meta = event["meta_info"]
        assert meta["id"] == body["rid"]
        assert meta["prompt_tokens"] == len(PROMPT)
        assert isinstance(meta["weight_version"], str)
        assert meta["num_retractions"] == 0
        assert meta["input_token_logprobs"] == []
    assert "weight_versions" not in stream.events[0]["meta_info"]


async def check_totals_are_absolute(t: Target) -> None:
    """Lists are deltas or cumulative as the server says; totals always count the whole reply."""
    info = (await t.client.get("/server_info"))[1]
    assert info["incremental_streaming_output"] is t.incremental
    stream = await t.client.stream(t.body("totals", 12))
    seen = 0
    for event in stream.events:
        shown = len(event["output_ids"])
        seen = seen + shown if t.incremental else shown
        meta = event["meta_info"]
        assert meta["completion_tokens"] == meta["output_token_logprobs_length"] == seen
        assert len(meta["output_token_logprobs"]) == shown


async def check_without_streaming(t: Target) -> None:
    """One object with the whole reply."""
    status, answer = await t.client.post("/generate", t.body("plain", 6))
    assert status == 200
    schema.check_answer(answer)
    meta = answer["meta_info"]
    assert len(answer["output_ids"]) == meta["completion_tokens"] == 6
    assert [i for _, i, _ in meta["output_token_logprobs"]] == answer["output_ids"]
    spans_cover(meta["weight_versions"], 6)


async def check_without_logprobs(t: Target) -> None:
    """No log-prob keys unless they were asked for."""
    stream = await t.client.stream(t.body("bare", 3, return_logprob=False))
    assert all("output_token_logprobs" not in event["meta_info"] for event in stream.events)
    assert len(stream.ids(incremental=t.incremental)) == 3


async def check_stop_token_is_included(t: Target) -> None:
    """The matched stop id is the last token, counted and with its log-prob."""
    stops = list(range(VOCABULARY // 2))
    params = {"stop_token_ids": stops, "ignore_eos": False}
    stream = await t.client.stream(t.body("stop", 200, params=params))
    t.check_whole(stream)
    ids = stream.ids(incremental=t.incremental)
    assert stream.finish == {"type": "stop", "matched": ids[-1]}
    assert ids[-1] in stops
    assert not set(ids[:-1]) & set(stops)


async def check_ignore_eos_ignores_stop_ids(t: Target) -> None:
    """ignore_eos switches stop_token_ids off as well: never send both."""
    params = {"stop_token_ids": list(range(VOCABULARY)), "ignore_eos": True}
    stream = await t.client.stream(t.body("ignore", 5, params=params))
    assert stream.finish == {"type": "length", "length": 5}


async def check_stop_beats_length(t: Target) -> None:
    """A stop id as the last allowed token is a stop."""
    params = {"stop_token_ids": list(range(VOCABULARY)), "ignore_eos": False}
    stream = await t.client.stream(t.body("both", 1, params=params))
    assert stream.finish is not None
    assert stream.finish["type"] == "stop"


async def check_no_new_tokens(t: Target) -> None:
    """max_new_tokens 0 is legal and gives an empty reply."""
    stream = await t.client.stream(t.body("zero", 0))
    assert stream.finish == {"type": "length", "length": 0}
    assert stream.ids(incremental=t.incremental) == []
    spans_cover(stream.last["meta_info"]["weight_versions"], 0)


async def check_stream_interval(t: Target) -> None:
    """The first token comes at once, then one event per interval."""
    stream = await t.client.stream(t.body("interval", 20, params={"stream_interval": 4}))
    totals = [event["meta_info"]["completion_tokens"] for event in stream.events]
    assert totals[0] == 1
    assert totals[-1] == 20
    assert all(later - earlier >= 4 for earlier, later in itertools.pairwise(totals[:-1]))


async def check_prompt_ids_on_request(t: Target) -> None:
    """return_prompt_token_ids echoes the prompt."""
    stream = await t.client.stream(t.body("echo", 2, return_prompt_token_ids=True))
    assert stream.last["prompt_token_ids"] == PROMPT


async def check_next_turn_hits_the_cache(t: Target) -> None:
    """A prompt that begins with a finished turn is mostly cached."""
    first = t.body("turn.one", 8, input_ids=[*range(40, 80)], session_id="turns")
    _, answer = await t.client.post("/generate", first)
    ids = [*first["input_ids"], *answer["output_ids"], 9, 9]
    second = t.body("turn.two", 2, input_ids=ids, session_id="turns")
    _, answer = await t.client.post("/generate", second)
    assert answer["meta_info"]["prompt_tokens"] == len(ids)
    assert answer["meta_info"]["cached_tokens"] >= len(first["input_ids"]) - 1


# ---- refusals ----

SCHEMA_REFUSALS: list[dict[str, Any]] = [
    {"sampling_params": {"max_tokens": 4}},
    {"sampling_params": {"seed": 4}},
    {"sampling_params": {"max_new_tokens": "5"}},
    {"sampling_params": {"temperature": "1"}},
    {"sampling_params": {"ignore_eos": 1}},
    {"sampling_params": {"stop_token_ids": ["a"]}},
    {"input_ids": ["a"]},
    {"input_ids": [1.0]},
    {"input_ids": "abc"},
    {"return_logprob": "yes"},
    {"stream": 1},
]

VALUE_REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"input_ids": []}, "input_ids"),
    ({"sampling_params": {"temperature": -1.0}}, "temperature"),
    ({"sampling_params": {"top_p": 2.0}}, "top_p"),
    ({"sampling_params": {"top_k": 0}}, "top_k"),
    ({"sampling_params": {"min_p": -0.5}}, "min_p"),
    ({"sampling_params": {"repetition_penalty": 0.0}}, "repetition_penalty"),
    ({"sampling_params": {"max_new_tokens": -1}}, "max_new_tokens"),
    ({"sampling_params": {"max_new_tokens": 10**6}}, "context length"),
    ({"input_ids": [5] * 5000}, "context length"),
]


async def check_schema_refusals(t: Target) -> None:
    """What the schema refuses is a 400, streaming or not, and no key passes by mistake."""
    for change in SCHEMA_REFUSALS:
        body = {**t.body("schema"), **change}
        assert schema.refusal(body) is not None, change
        status, answer = await t.client.post("/generate", body)
        assert status == 400, change
        assert "error" in answer or answer.get("object") == "error", change
        if "stream" not in change:
            status, answer = await t.client.post("/generate", {**body, "stream": True})
            assert status == 400, change


async def check_unknown_sampling_key_is_named(t: Target) -> None:
    """The 400 says which key, in the schema's own words."""
    body = {**t.body("key"), "sampling_params": {"max_tokens": 4}}
    status, answer = await t.client.post("/generate", body)
    assert (status, answer) == (400, {"error": schema.refusal(body)})


async def check_unknown_top_level_key_passes(t: Target) -> None:
    """Unknown keys beside sampling_params are ignored."""
    status, _ = await t.client.post("/generate", t.body("top", 1, not_a_key=1))
    assert status == 200


async def check_value_refusals(t: Target) -> None:
    """What is well formed and impossible: 400, or one error event in a stream of status 200."""
    for change, word in VALUE_REFUSALS:
        body = {**t.body("value"), **change}
        assert schema.refusal(body) is None, change
        status, answer = await t.client.post("/generate", body)
        assert status == 400, change
        assert word in answer["error"]["message"], change
        stream = await t.client.stream(body)
        assert (stream.status, stream.done, len(stream.events)) == (200, True, 1), change
        schema.check_error_event(stream.last)
        assert word in stream.last["error"]["message"], change


async def check_duplicate_rid(t: Target) -> None:
    """An id in flight is refused a second time; the first reply goes on."""
    body = t.body("twin")
    async with t.client.streaming(body) as (_, task):
        second = await t.client.stream(body)
        assert "Duplicate" in second.last["error"]["message"]
        assert not task.done()
        await t.abort(body["rid"])
        t.check_whole(await finished(task))


# ---- aborts ----


async def check_abort(t: Target) -> None:
    """An abort ends the stream soon, in good order, with all that was sampled."""
    body = t.body("abort")
    async with t.client.streaming(body, after=5) as (_, task):
        await t.abort(body["rid"])
        async with asyncio.timeout(2):
            stream = await task
    t.check_whole(stream)
    assert stream.finish is not None
    assert stream.finish["type"] == "abort"


async def check_abort_matches_prefixes_of_known_ids(t: Target) -> None:
    """An abort reaches every id that begins with its own, if its own is in flight."""
    short, long = t.body("prefix"), t.body("x")
    long["rid"] = short["rid"] + "-and-more"
    async with t.client.streaming(long) as (_, long_task):
        await t.abort(short["rid"])
        await asyncio.sleep(SETTLE_S)
        assert not long_task.done(), "an id that is not in flight aborts nothing"
        async with t.client.streaming(short) as (_, short_task):
            await t.abort(short["rid"])
            for task in (short_task, long_task):
                stream = await finished(task)
                assert stream.finish is not None
                assert stream.finish["type"] == "abort"


async def check_abort_all(t: Target) -> None:
    """abort_all ends everything."""
    async with (
        t.client.streaming(t.body("all")) as (_, one),
        t.client.streaming(t.body("all")) as (_, two),
    ):
        assert (await t.client.post("/abort_request", {"abort_all": True}))[0] == 200
        for task in (one, two):
            assert ((await finished(task)).finish or {})["type"] == "abort"


async def check_abort_of_nothing(t: Target) -> None:
    """Aborting what is not there is a success."""
    await t.abort("nobody")


async def check_leaving_ends_the_reply(t: Target) -> None:
    """A client that goes away leaves nothing running. Loads are snapshots and lag behind."""
    async with t.client.streaming(t.body("leave", 4000)):
        await t.until_running(1)
    await t.until_running(0)


# ---- pauses ----


async def check_retract_keeps_the_stream(t: Target) -> None:
    """A retracting pause stops the tokens, frees the cache, and the stream goes on after it."""
    async with t.client.streaming(t.body("retract", 60), after=5) as (stream, task):
        async with t.paused("retract"):
            await asyncio.sleep(SETTLE_S)
            seen = len(stream.events)
            assert (await t.client.post("/flush_cache"))[0] == 200
            await asyncio.sleep(SETTLE_S)
            assert len(stream.events) == seen
        t.check_whole(await finished(task))
    assert stream.finish == {"type": "length", "length": 60}
    assert stream.last["meta_info"]["num_retractions"] == 1


async def check_ready_tells_of_a_pause(t: Target) -> None:
    """/ready answers at once, and says no while a pause is on; /model_info answers as ever."""
    assert (await t.client.get("/ready"))[0] == 200
    async with t.paused("retract"):
        assert (await t.client.get("/ready"))[0] == 503
        assert await t.version()
    assert (await t.client.get("/ready"))[0] == 200


async def check_in_place_keeps_the_cache(t: Target) -> None:
    """A pause in place freezes the stream; its cache cannot be flushed."""
    async with t.client.streaming(t.body("place", 60), after=5) as (stream, task):
        async with t.paused("in_place"):
            await asyncio.sleep(SETTLE_S)
            seen = len(stream.events)
            assert (await t.client.post("/flush_cache"))[0] == 400
            await asyncio.sleep(SETTLE_S)
            assert len(stream.events) == seen
        t.check_whole(await finished(task))
    assert stream.finish == {"type": "length", "length": 60}
    assert stream.last["meta_info"]["num_retractions"] == 0


async def check_pause_by_abort(t: Target) -> None:
    """The default pause ends what runs and holds what comes."""
    async with t.client.streaming(t.body("pause"), after=5) as (_, task):
        status, _ = await t.client.post("/pause_generation", {})
        assert status == 200
        async with t.paused("abort"):
            stream = await finished(task)
            t.check_whole(stream)
            assert (stream.finish or {})["type"] == "abort"
            async with t.client.streaming(t.body("wait", 5), after=0) as (_, waiting):
                await asyncio.sleep(SETTLE_S)
                assert not waiting.done()
                await t.client.post("/continue_generation")
                t.check_whole(await finished(waiting))


async def check_abort_in_the_queue_repeats_the_last_token(t: Target) -> None:
    """A retracted reply aborted while paused ends with an event of another make.

    It has no prompt_tokens, all log-probs, and in the incremental shape the last id again.
    """
    body = t.body("queue")
    async with t.client.streaming(body, after=5) as (stream, task), t.paused("retract"):
        await asyncio.sleep(SETTLE_S)
        await t.abort(body["rid"])
        await finished(task)
        held = Stream(status=200, events=stream.events[:-1]).ids(incremental=t.incremental)
        schema.check_answer(stream.last)
        meta = stream.last["meta_info"]
        assert meta["finish_reason"]["type"] == "abort"
        assert meta["completion_tokens"] == len(meta["output_token_logprobs"]) == len(held)
        assert stream.last["output_ids"] == (held[-1:] if t.incremental else held)
        assert "prompt_tokens" not in meta


async def check_abort_in_place_waits_for_the_end_of_the_pause(t: Target) -> None:
    """A reply frozen in place is aborted when the pause ends."""
    body = t.body("frozen")
    async with t.client.streaming(body, after=5) as (_, task):
        async with t.paused("in_place"):
            await t.abort(body["rid"])
            await asyncio.sleep(SETTLE_S)
            assert not task.done()
        stream = await finished(task)
    t.check_whole(stream)
    assert (stream.finish or {})["type"] == "abort"


async def check_abort_of_a_held_request_is_lost(t: Target) -> None:
    """A request that waits for the end of a pause cannot be aborted: it runs afterwards."""
    body = t.body("held", 5)
    async with t.paused("retract"):
        waiting = asyncio.create_task(t.client.stream(body))
        await asyncio.sleep(SETTLE_S)
        await t.abort(body["rid"])
        await asyncio.sleep(SETTLE_S)
        assert not waiting.done()
    stream = await finished(waiting)
    assert stream.finish == {"type": "length", "length": 5}


# ---- weights ----


async def check_update_in_a_pause(t: Target) -> None:
    """pause, update, continue: later tokens carry the new version, and so does the server."""
    before, after = await t.version(), f"update-{next(t.serial)}"
    async with t.client.streaming(t.body("update", 60), after=5) as (stream, task):
        async with t.paused("retract"):
            status, answer = await t.client.post(
                "/update_weights_from_disk",
                {"model_path": str(t.weights[0]), "weight_version": after},
            )
            assert (status, answer["success"]) == (200, True), answer
            assert await t.version() == after
        t.check_whole(await finished(task))
    spans = stream.last["meta_info"]["weight_versions"]
    assert [span["version"] for span in spans] == [before, after]
    assert stream.events[0]["meta_info"]["weight_version"] == before
    assert stream.last["meta_info"]["weight_version"] == after


async def check_update_in_place_needs_no_flush(t: Target) -> None:
    """Under in_place an update must not ask for a flush: it loads, fails, and is not reported."""
    before, after = await t.version(), f"kept-{next(t.serial)}"
    update = {"model_path": str(t.weights[1]), "weight_version": after}
    async with t.client.streaming(t.body("noflush", 60), after=5) as (stream, task):
        async with t.paused("in_place"):
            status, answer = await t.client.post("/update_weights_from_disk", update)
            assert (status, answer["success"]) == (400, False)
            assert await t.version() == before
            update["flush_cache"] = False  # type: ignore[assignment]
            status, answer = await t.client.post("/update_weights_from_disk", update)
            assert (status, answer["success"]) == (200, True), answer
            assert await t.version() == after
        t.check_whole(await finished(task))
    versions = [s["version"] for s in stream.last["meta_info"]["weight_versions"]]
    assert versions == [before, after]


async def check_update_without_a_pause_waits(t: Target) -> None:
    """Outside a pause an update waits until nothing runs.

    Without a flush, which SGLang may refuse in the instant after the last token was sent.
    """
    after = f"waited-{next(t.serial)}"
    async with t.client.streaming(t.body("busy", 150), after=5) as (_, task):
        update = asyncio.create_task(
            t.client.post(
                "/update_weights_from_disk",
                {
                    "model_path": str(t.weights[0]),
                    "weight_version": after,
                    "flush_cache": False,
                },
            )
        )
        await asyncio.sleep(0.05)
        assert not update.done()
        stream = await finished(task)
        status, answer = await update
    assert (status, answer["success"]) == (200, True), answer
    assert [s["version"] for s in stream.last["meta_info"]["weight_versions"]] != [after]
    assert await t.version() == after


async def check_update_of_a_missing_folder(t: Target) -> None:
    """A folder that is not there is a 400 and changes nothing."""
    before = await t.version()
    status, answer = await t.client.post(
        "/update_weights_from_disk", {"model_path": "/no/such/folder", "weight_version": "x"}
    )
    assert (status, answer["success"]) == (400, False)
    assert await t.version() == before


async def check_rename_of_the_version(t: Target) -> None:
    """/update_weight_version names the loaded weights anew, and aborts everything by default."""
    async with t.client.streaming(t.body("rename"), after=2) as (_, task):
        status, answer = await t.client.post("/update_weight_version", {"new_version": "named"})
        assert (status, answer["success"], answer["new_version"]) == (200, True, "named")
        assert ((await finished(task)).finish or {})["type"] == "abort"
    assert await t.version() == "named"


async def check_bad_control_bodies(t: Target) -> None:
    """An unknown pause mode and an update without a path are 400s."""
    assert (await t.client.post("/pause_generation", {"mode": "later"}))[0] == 400
    assert (await t.client.post("/update_weights_from_disk", {}))[0] == 400
    assert (await t.client.post("/update_weight_version", {}))[0] == 400


Check = Callable[[Target], Awaitable[None]]
CHECKS: list[Check] = [
    check for name, check in sorted(globals().items()) if name.startswith("check_")
]
