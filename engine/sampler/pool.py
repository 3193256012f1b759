"""All samplers of a run: routing, generation that survives a broken stream, liveness.

Invariants
- A trajectory stays on its server (prefix cache) until that server goes down.
- A server that was down gets no request before it has the newest published version.
- A generation that breaks goes on from the tokens already received, with the reduced budget.
- A request id is never a prefix of another: they all have one length (abort matches prefixes).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache

import aiohttp
import structlog

from engine.errors import SamplerFailed, StartupError
from engine.sampler.client import (
    SamplerClient,
    ServerInfo,
    ServerRefused,
    ServerSilent,
    ServerUnreachable,
)
from engine.sampler.stops import StopDetector, StopTable
from engine.sampler.wire import Chunk, WireError, generate_request
from engine.types import Codec, Generated, Images, StopHit
from toolwright.recipe import Sampler as SamplerTable
from toolwright.types import FinishKind, FinishReason, SamplingParams, WeightVersion

PROBE_SECONDS = 1.0
"""Between looks at a server that is down."""

log = structlog.get_logger("sampler")

OnStop = Callable[[Sequence[int], StopHit, int], None]
"""Called once, at once, with (kept token ids, the stop, ns when its bytes were read)."""


class Server:
    """One sampler and what the pool knows of it."""

    def __init__(self, client: SamplerClient) -> None:
        self.client = client
        self.in_flight = 0
        self.up = asyncio.Event()
        self.info: ServerInfo | None = None

    @property
    def incremental(self) -> bool:
        return self.info is not None and self.info.incremental

    @property
    def reads_text(self) -> bool:
        """It has a tokenizer; without one it refuses stop texts, which then are only ours."""
        return self.info is not None and self.info.reads_text


class SamplerPool:
    """Routes generations over the recipe's endpoints; `bring_up` is the weight control's."""

    def __init__(self, table: SamplerTable, codec: Codec, *, vocab_size: int) -> None:
        self._table = table
        self._codec = codec
        self._vocab_size = vocab_size
        self._session: aiohttp.ClientSession | None = None
        self._sticky: dict[str, Server] = {}
        self._aborts: set[asyncio.Task[None]] = set()
        self.servers: list[Server] = []
        self.bring_up: Callable[[Server], Awaitable[None]] | None = None

    async def open(self) -> None:
        """Connects to every endpoint. StartupError names the one that does not answer."""
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        for url in self._table.endpoints:
            client = SamplerClient(url, self._session, silence=self._table.timeout_s)
            server = Server(client)
            try:
                server.info = await client.info()
            except (ServerUnreachable, ServerRefused, WireError) as error:
                raise StartupError(
                    f"sampler {url} is down or is no SGLang server ({error}); start it or "
                    "correct sampler.endpoints"
                ) from error
            if self._codec.image_mark is not None and not server.info.reads_images:
                raise StartupError(
                    f"sampler {url} reads no images, but policy.model does: start it with that "
                    "folder, or one of its architecture"
                )
            self.servers.append(server)

    async def close(self) -> None:
        for task in list(self._aborts):
            task.cancel()
        await asyncio.gather(*self._aborts, return_exceptions=True)
        for server in self.servers:
            server.client.close()
        if self._session is not None:
            await self._session.close()

    @property
    def longest_prompt(self) -> int | None:
        """Tokens that the smallest context takes; None where no server says."""
        told = [s.info.max_input_tokens for s in self.servers if s.info is not None]
        return min((tokens for tokens in told if tokens), default=None)

    @property
    def any_up(self) -> bool:
        return any(server.up.is_set() for server in self.servers)

    def release(self, key: str) -> None:
        """The trajectory is over: its server may be forgotten."""
        self._sticky.pop(key, None)

    async def generate(
        self,
        *,
        key: str,
        token_ids: Sequence[int],
        sampling: SamplingParams,
        max_new_tokens: int,
        stops: StopTable,
        on_stop: OnStop,
        images: Images | None = None,
    ) -> Generated:
        """One action after `token_ids` with their `images`; ends at a stop, the length, or a
        failure.

        `on_stop` is called before the stream has ended. SamplerFailed when the retries are used
        up or no sampler takes the request; permanent where all of the request came from the
        caller.
        """
        if token_ids and max(token_ids) >= self._vocab_size:
            raise SamplerFailed(
                f"token id {max(token_ids)} is outside the policy's vocabulary", permanent=True
            )
        action = _Action(stops, self._codec, on_stop, images)
        failures = unanswered = 0
        while True:
            server = await self._pick(key)
            before = len(action.token_ids)
            try:
                finish = await self._stream(
                    server, key, [*token_ids, *action.token_ids], sampling,
                    max_new_tokens - len(action.token_ids), action,
                )  # fmt: skip
            except (ServerUnreachable, WireError) as error:
                failures += 1
                log.warning("stream_broken", server=server.client.url, error=str(error))
                if isinstance(error, ServerUnreachable):
                    dropped = images is not None and len(action.token_ids) == before
                    dropped = dropped and not isinstance(error, ServerSilent)
                    lives = (failures == 1 or dropped) and await self._lives(server)
                    unanswered += dropped and lives
                    if unanswered > 1:  # SGLang drops a request whose image breaks its decoder
                        raise SamplerFailed(
                            f"{error}, twice, with images, on a server that lives"
                        ) from error
                    if failures > 1 or not lives:
                        self.mark_down(server)
                elif not error.retryable:
                    raise SamplerFailed(str(error), permanent=not action.token_ids) from error
                if failures > self._table.max_retries:
                    raise SamplerFailed(str(error)) from error
                await asyncio.sleep(0.1 * failures)
                continue
            except ServerRefused as error:
                raise SamplerFailed(str(error), permanent=not action.token_ids) from error
            if finish.kind is FinishKind.ABORT:
                if len(action.token_ids) < max_new_tokens:  # a pause or a foreign abort: go on
                    if len(action.token_ids) == before:
                        failures += 1
                        if failures > self._table.max_retries:
                            raise SamplerFailed(f"{server.client.url} aborts again and again")
                        await asyncio.sleep(0.1 * failures)
                    continue
                finish = FinishReason(kind=FinishKind.LENGTH)
            return action.generated(finish)

    async def _lives(self, server: Server) -> bool:
        """It answers, with weights of ours: one broken connection condemns no server."""
        try:
            return _is_ours(await server.client.weight_version())
        except (ServerUnreachable, ServerRefused, WireError):
            return False

    def mark_down(self, server: Server) -> None:
        if server.up.is_set():
            server.up.clear()
            log.warning("sampler_down", server=server.client.url)
        for key in [k for k, held in self._sticky.items() if held is server]:
            del self._sticky[key]

    async def keep_alive(self) -> None:
        """Brings servers that went down back up once they answer; runs until cancelled."""
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            for server in self.servers:
                if server.up.is_set() or self.bring_up is None:
                    continue
                try:
                    server.info = await server.client.info()
                    await self.bring_up(server)
                except (ServerUnreachable, ServerRefused, WireError) as error:
                    log.info("sampler_still_down", server=server.client.url, error=str(error))

    async def _pick(self, key: str) -> Server:
        held = self._sticky.get(key)
        if held is not None and held.up.is_set():
            return held
        if not self.any_up:
            try:
                async with asyncio.timeout(self._table.timeout_s):
                    await self._any_up()
            except TimeoutError as error:
                raise SamplerFailed(f"no sampler up for {self._table.timeout_s:g} s") from error
        server = min((s for s in self.servers if s.up.is_set()), key=lambda s: s.in_flight)
        self._sticky[key] = server
        return server

    async def _any_up(self) -> None:
        """Returns when at least one server is up."""
        waits = [asyncio.ensure_future(server.up.wait()) for server in self.servers]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _stream(
        self,
        server: Server,
        key: str,
        token_ids: Sequence[int],
        sampling: SamplingParams,
        max_new_tokens: int,
        action: _Action,
    ) -> FinishReason:
        rid = uuid.uuid4().hex
        body = generate_request(
            rid=rid,
            input_ids=token_ids,
            sampling=sampling,
            max_new_tokens=max_new_tokens,
            stop_token_ids=sorted(action.stops.by_token),
            stop=action.stops.longer if server.reads_text else (),
            stream_interval=self._table.stream_interval,
            routing_key=key,
            images=action.images,
        )
        server.in_flight += 1
        action.begin()
        try:
            await server.client.stream(
                body, incremental=server.incremental, on_chunk=action.on_chunk
            )
        finally:
            server.in_flight -= 1
            if not action.server_finished:
                self._abort(server, rid)
        if action.finish is None:
            raise AssertionError("a stream ends with a finish reason or an error")
        return action.finish

    def _abort(self, server: Server, rid: str) -> None:
        """Ends a request that nobody reads any more; owned by the pool until it is done."""

        async def post() -> None:
            try:
                await server.client.abort(rid)
            except (ServerUnreachable, ServerRefused, WireError) as error:
                log.info("abort_failed", server=server.client.url, error=str(error))

        task = asyncio.get_running_loop().create_task(post())
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)


class _Action:
    """Tokens of one action over all its requests."""

    def __init__(
        self, stops: StopTable, codec: Codec, on_stop: OnStop, images: Images | None = None
    ) -> None:
        self.stops = stops
        self.images = images
        self._prompt: tuple[int, tuple[int, ...]] | None = None
        """What the server made of the prompt, as the first chunk tells."""
        self.token_ids: list[int] = []
        self._logprobs: list[float] = []
        self._versions: list[str] = []
        self._detector = StopDetector(stops, codec.decode)
        self._on_stop = on_stop
        self._base = 0
        self.finish: FinishReason | None = None
        self.server_finished = False

    def begin(self) -> None:
        """A new request goes on from here."""
        self._base = len(self.token_ids)
        self.finish = None
        self.server_finished = False

    def on_chunk(self, chunk: Chunk, read_ns: int) -> bool:
        """Takes one chunk, calls `on_stop` at once; False when the rest is of no use."""
        if chunk.token_ids and not _is_ours(chunk.weight_version):
            raise ServerUnreachable(
                f"it writes under weights {chunk.weight_version!r}, not ours: it was started anew"
            )
        if self._prompt is None and chunk.prompt_tokens:
            end = len(chunk.prompt_ids) - self._base
            self._prompt = (chunk.prompt_tokens - self._base, tuple(chunk.prompt_ids[:end]))
        hit = self._detector.feed(chunk.token_ids)
        keep = len(chunk.token_ids) if hit is None else hit.keep - len(self.token_ids)
        self.token_ids.extend(chunk.token_ids[:keep])
        if hit is not None:
            self._on_stop(self.token_ids, hit, read_ns)
            self.finish = FinishReason(
                kind=FinishKind.STOP,
                matched_token=hit.matched_token,
                matched_text=hit.matched_text,
            )
        self._logprobs.extend(chunk.logprobs[:keep])
        self._versions.extend([chunk.weight_version] * keep)
        if chunk.finish is not None:
            self.server_finished = True
            self.finish = self.finish or chunk.finish
            self._correct_versions(chunk.weight_spans)
        return hit is None

    def _correct_versions(self, spans: Sequence[tuple[str, int, int]]) -> None:
        """The server's own account, which wins where a chunk straddled an update."""
        for version, start, end in spans:
            if not _is_ours(version):
                continue
            for position in range(self._base + start, min(self._base + end, len(self._versions))):
                self._versions[position] = version

    def generated(self, finish: FinishReason) -> Generated:
        parsed = {text: WeightVersion.parse(text) for text in set(self._versions)}
        prompt_tokens, prompt_ids = self._prompt or (0, ())
        return Generated(
            token_ids=tuple(self.token_ids),
            logprobs=tuple(self._logprobs),
            versions=tuple(parsed[text] for text in self._versions),
            finish=finish,
            prompt_tokens=prompt_tokens,
            prompt_ids=prompt_ids,
        )


@lru_cache(maxsize=64)
def _is_ours(version: str) -> bool:
    """The engine named these weights; a server that was started anew has others."""
    try:
        WeightVersion.parse(version)
    except ValueError:
        return False
    return True
