"""The scripted sampler: an HTTP server with SGLang's native wire, and no model.

Owns the socket, /generate and the record of requests. Invariants: requests are recorded in the
order in which their bodies arrived, before any check; a client that leaves ends its reply; leaving
the context ends every stream and frees the port.

    async with ScriptedSampler(script=replies([[5, 6, 2]])) as sampler:
        ...  # POST to sampler.url + "/generate"
        assert sampler.requests[1].input_ids[:n] == sampler.requests[0].input_ids
"""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Self

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from bench.scripted import wire
from bench.scripted.adapters import Adapters
from bench.scripted.body import check_schema, read_request
from bench.scripted.control import Control
from bench.scripted.conversation import Conversations
from bench.scripted.faults import Break, BreakHow, Faults
from bench.scripted.scheduling.batch import Gpu
from bench.scripted.scheduling.generation import Generation
from bench.scripted.scheduling.scheduler import Scheduler
from bench.scripted.scheduling.timing import Timing
from bench.scripted.script import Script, tokens
from bench.scripted.types import (
    GenerateRequest,
    ReplyLog,
    RequestError,
    SchemaError,
    SeenRequest,
    StartError,
    Watch,
)
from bench.scripted.update_group import UpdateGroups
from toolwright.rpc.auth import Tokens
from toolwright.rpc.http_middleware import ruled
from toolwright.rpc.http_rule import HttpRule, names_of

MAX_BODY_BYTES = 64 * 2**20
SHUTDOWN_S = 0.1
MAX_RECORDED = 10_000
"""Request bodies kept; the oldest go first."""
BACKLOG = 4096
"""Connections that wait to be accepted. Thousands of clients may come at one instant, and the
kernel delays a connection without room by a second."""


@dataclass(kw_only=True, eq=False)
class ScriptedSampler:
    """A sampler whose replies come from `script`, at the pace of `timing`."""

    script: Script
    timing: Timing | None = None
    incremental: bool = True
    """Chunks are deltas (`--incremental-streaming-output`), or else cumulative."""
    faults: Faults | None = None
    eos: Iterable[int] = ()
    """Ids that end a reply unless the request says ignore_eos."""
    vocab_size: int | None = None
    """Input ids outside it are refused; the real server dies of them."""
    image_token: int | None = None
    """Id of an image's place. With it the sampler reads image_data."""
    media_words: Sequence[Sequence[int]] = ()
    """Further ids of a place of an image or video: SGLang finds `<image>` in the ids' text."""
    context_length: int = 32768
    weight_version: str = "default"
    """Version before any update."""
    host: str = "127.0.0.1"
    port: int = 0
    """0 takes a free port, which is in `url`."""
    record: int = MAX_RECORDED
    """Number of the newest request bodies in `requests`."""
    watch: Watch | None = None
    log: ReplyLog | None = None
    takes_adapters: bool = False
    """Adapters can be loaded (`--enable-lora`)."""
    tensor_parallel: int = 1
    """Number of processes that the server reports."""
    gpu: Gpu | None = None
    """Replies share this GPU and its prefix cache; None = each has its own pace."""

    def __post_init__(self) -> None:
        self._script = self.script
        self._timing = self.timing or Timing()
        self._faults = self.faults or Faults()
        self._eos = frozenset(self.eos)
        self._adapters = Adapters(enabled=self.takes_adapters)
        self._seen: deque[SeenRequest] = deque(maxlen=self.record)
        self._arrivals = itertools.count()
        self._conversations = Conversations()
        self._runner: web.AppRunner | None = None
        self._scheduler: Scheduler
        self._control: Control

    # ---- for tests and callers ----

    @property
    def url(self) -> str:
        """Where the server listens, without a trailing slash."""
        return f"http://{self.host}:{self.port}"

    @property
    def requests(self) -> tuple[SeenRequest, ...]:
        """The /generate bodies so far, oldest first."""
        return tuple(self._seen)

    @property
    def scheduler(self) -> Scheduler:
        """The replies in flight."""
        return self._scheduler

    @property
    def adapters(self) -> dict[str, str]:
        """Folders of the loaded adapters, by name."""
        return dict(self._adapters.loaded)

    @property
    def groups(self) -> UpdateGroups:
        """The groups of processes for weight updates."""
        return self._control.groups

    async def __aenter__(self) -> Self:
        """Start to listen.

        Raises:
            StartError: the address cannot be taken.
        """
        self._scheduler = Scheduler(
            timing=self._timing,
            weight_version=self.weight_version,
            gpu=self.gpu,
            loaded=self.log.loaded if self.log is not None else None,
        )
        self._control = Control(
            scheduler=self._scheduler,
            conversations=self._conversations,
            faults=self._faults,
            adapters=self._adapters,
            reads_images=self.image_token is not None,
            info={
                "model_path": "scripted", "incremental_streaming_output": self.incremental,
                "skip_tokenizer_init": True, "stream_interval": 1, "max_running_requests": None,
                "tp_size": self.tensor_parallel, "dp_size": 1, "pp_size": 1,
                "enable_lora": self.takes_adapters or None, "context_length": self.context_length,
                "max_req_input_len": self.context_length - 1,
                **({"max_total_num_tokens": self.gpu.cache_tokens} if self.gpu else {}),
            },
        )  # fmt: skip
        rule = HttpRule(Tokens(), names_of(f"{self.host}:{self.port}"))
        app = web.Application(
            client_max_size=MAX_BODY_BYTES, middlewares=[ruled(rule), self._resets_after_death]
        )
        app.add_routes(
            [web.route(verb, "/generate", self._generate) for verb in ("POST", "PUT")]
            + self._control.routes()
        )
        runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=SHUTDOWN_S
        )
        await runner.setup()
        site = web.TCPSite(runner, self.host, self.port, backlog=BACKLOG)
        try:
            await site.start()
        except OSError as error:
            await runner.cleanup()
            raise StartError(
                f"cannot listen on {self.host}:{self.port}: {error.strerror}; "
                "choose another port, or 0 for a free one"
            ) from error
        self.port = runner.addresses[0][1]
        self._runner = runner
        return self

    async def __aexit__(self, *_exc: object) -> None:
        if self._runner is not None:
            await self._control.groups.close()
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _resets_after_death(
        self, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        if self._scheduler.memory.died and request.transport is not None:
            request.transport.abort()
            return web.Response(status=500)
        return await handler(request)

    # ---- /generate ----

    async def _generate(self, http: web.Request) -> web.StreamResponse:
        raw = await http.read()
        read_ns = time.monotonic_ns()
        index = next(self._arrivals)
        try:
            body = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            return _error(f"the body is not JSON: {error}")
        if isinstance(body, dict):
            self._seen.append(SeenRequest(index=index, body=body))
        if index in self._faults.refuse and http.transport is not None:
            http.transport.abort()
            return web.Response(status=503)
        try:
            fields = check_schema(body)
        except SchemaError as error:
            return web.json_response({"error": str(error)}, status=400)
        try:
            request = read_request(
                fields,
                new_rid="" if fields.get("rid") else uuid.uuid4().hex,
                context_length=self.context_length,
                vocab_size=self.vocab_size,
                image_token=self.image_token,
                media_words=self.media_words,
            )
            self._check_images(request)
            self._scheduler.register(request.rid)
        except RequestError as error:
            if fields.get("stream"):
                return await _failed_stream(http, str(error))
            return _error(str(error))
        try:
            async with self._adapters.used(request.adapter):
                if not request.stream:
                    return await self._answer(request)
                return await self._stream(http, request, self._faults.breaks.get(index), read_ns)
        except RequestError as error:
            return await _failed_stream(http, str(error)) if request.stream else _error(str(error))
        finally:
            await self._scheduler.forget(request.rid)

    def _check_images(self, request: GenerateRequest) -> None:
        if self._faults.bad_images.intersection(request.images):
            raise RequestError("Error while loading data: image file is truncated")

    async def _start(self, request: GenerateRequest) -> Generation:
        started = asyncio.get_running_loop().time()
        await self._scheduler.admitted()
        opening = self._conversations.open(request)
        said = tokens(self._script, opening.script_request)
        generation = Generation(
            request=request,
            source=islice(said, opening.skip, None) if opening.skip else said,
            delays=self._timing.delays(request.rid),
            eos=self._eos,
            started=started,
            cached_tokens=opening.cached_tokens,
        )
        self._conversations.attach(request.conversation, generation.tokens)
        self._scheduler.start(generation)
        return generation

    async def _answer(self, request: GenerateRequest) -> web.Response:
        generation = await self._start(request)
        while generation.finish is None:
            generation.changed.clear()
            await generation.changed.wait()
        body = generation.whole(
            weight_version=self._scheduler.weight_version,
            now=asyncio.get_running_loop().time(),
            wall=time.time(),
        )
        self._close(generation)
        return web.Response(body=orjson.dumps(body), content_type="application/json")

    async def _stream(
        self, http: web.Request, request: GenerateRequest, broken: Break | None, read_ns: int
    ) -> web.StreamResponse:
        loop = asyncio.get_running_loop()
        if self.watch is not None:
            self.watch.asked(request)
        response = _event_stream()
        writer = await response.prepare(http)
        if writer is not None:
            # The real server answers with its headers at once, also while a pause holds the rest.
            writer.send_headers()
        generation = await self._start(request)
        if self.log is not None:
            self.log.began(request.rid, request.conversation, request.input_ids)
        sent = 0
        while True:
            if broken is not None and sent >= broken.chunks:
                await _break(http, response, broken)
                return response
            await generation.changed.wait()
            finished = generation.finish is not None
            if finished and self.watch is not None:
                self.watch.replied(request, read_ns, time.monotonic_ns())
            if self.log is not None:
                for version, token_ids in generation.untaken():
                    self.log.sends(request.rid, version, token_ids)
            await response.write(
                generation.take(
                    incremental=self.incremental,
                    weight_version=self._scheduler.weight_version,
                    now=loop.time(),
                    wall=time.time(),
                )
            )
            sent += 1
            if finished:
                break
        self._close(generation)
        await response.write_eof(wire.DONE)
        if self.log is not None:
            self.log.over(request.rid)
        return response

    def _close(self, generation: Generation) -> None:
        if generation.finish is not None and generation.finish.kind != "abort":
            cut = generation.finish.kind == "length"
            self._conversations.close(generation.request, generation.tokens, cut=cut)


def _event_stream() -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    response.enable_chunked_encoding()
    return response


async def _failed_stream(http: web.Request, message: str) -> web.StreamResponse:
    response = _event_stream()
    await response.prepare(http)
    await response.write(wire.event(wire.stream_error_body(message)))
    await response.write_eof(wire.DONE)
    return response


async def _break(http: web.Request, response: web.StreamResponse, broken: Break) -> None:
    match broken.how:
        case BreakHow.CUT:
            if http.transport is not None:
                http.transport.abort()
        case BreakHow.STALL:
            await asyncio.Event().wait()
        case BreakHow.ERROR:
            body = wire.stream_error_body("Stream error: the worker is gone", kind="stream_error")
            await response.write(wire.event(body))
            await response.write_eof(wire.DONE)
        case BreakHow.DONE:
            await response.write_eof(wire.DONE)


def _error(message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=400)
