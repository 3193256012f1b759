"""One SGLang server over HTTP: streams, and the engine's control calls.

It knows the server's wire format and nothing of trajectories. Every call has a deadline, and a
stream has a longest silence. A stream is complete only when a chunk carried a finish reason.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from engine.core.sampler.retry import Fault
from engine.core.sampler.wire.events import DONE, Chunk, ChunkReader, WireError
from engine.core.sampler.wire.request import encode
from engine.core.sampler.wire.stream import (
    StatusError,
    Stream,
    StreamBroken,
    StreamingHttp,
    StreamSilent,
)

OnChunk = Callable[[Chunk, int], bool]
"""(chunk, ns when its bytes were read) -> go on reading."""

ABORT_SECONDS = 10.0
CONTROL_TIMEOUT = 300.0
"""Seconds for a weight update from disk of the largest models."""
UNLOAD_SECONDS = 5.0
GROUP_TIMEOUT = 900.0
"""Seconds for a call that waits for the other members of a group: longer than any lease."""

MAX_ANSWER_BYTES = 4 * 2**20
"""Longest answer to a control call; /server_info has some hundred thousand at most."""


class ServerUnreachable(Exception):
    """The connection failed or broke; the server may be gone."""


class ServerSilent(ServerUnreachable):
    """A stream stands still: the server may hang."""


class ServerRefused(Exception):
    """The server refused the request."""


def fault_of(error: ServerUnreachable | ServerRefused | WireError) -> Fault:
    """The kind of a failed request."""
    if isinstance(error, WireError):
        return Fault.MALFORMED if error.retryable else Fault.REFUSED
    if isinstance(error, ServerRefused):
        return Fault.REFUSED
    return Fault.SILENT if isinstance(error, ServerSilent) else Fault.BROKEN


class NoRoute(ServerRefused):
    """The server is of an older version and has no such route."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """The part of /server_info that the engine uses."""

    incremental: bool
    reads_text: bool
    reads_images: bool
    version: str
    weight_version: str
    model_path: str
    max_input_tokens: int | None
    ranks: int | None
    """Processes that hold its weights, all by tensor parallelism. None if the server splits weights
    or requests in another way too."""
    memory_share: float = 0.0
    """Share of its GPU's memory for weights and cache; 0 if the server does not report it."""
    keeps_memory: bool = False
    """Whether the server was started such that it cannot release memory of its GPU."""
    takes_adapters: bool = False
    """Whether the server loads adapters (LoRA) while it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The part of /v1/loads that the engine uses, summed over a server's ranks."""

    cache_tokens: int
    """Size of the prefix cache; 0 if the server does not report it."""
    cache_use: float
    """Share of it that running requests hold; the largest of its ranks."""
    waiting: int
    """Requests in its queue."""


def _deaf(_chunk: Chunk, _read_ns: int) -> bool:
    return False


class SamplerStream:
    """One request's stream."""

    def __init__(
        self,
        url: str,
        http: StreamingHttp,
        reader: ChunkReader,
        on_chunk: OnChunk,
        on_quiet: Callable[[float], None] | None,
    ) -> None:
        self._url = url
        self._http = http
        self._reader = reader
        self._on_chunk = on_chunk
        self._stream = Stream(self._on_event, on_quiet)
        self._finished = self._stopped = False

    async def read(self, body: Mapping[str, Any]) -> None:
        """Passes every chunk to `on_chunk` as its bytes are read, until the finish reason came or
        `on_chunk` returned False. Then the connection closes and the server drops the request.

        Raises ServerUnreachable if the stream breaks, ServerSilent if it falls silent. Raises
        WireError if it is malformed or holds an error, ServerRefused if the server refuses the
        request. Raises the error that `end` got.
        """
        try:
            await self._http.post(encode(body), self._stream)
        except StreamBroken as error:
            if not (self._finished or self._stopped):
                kind = ServerSilent if isinstance(error, StreamSilent) else ServerUnreachable
                raise kind(f"{self._url}: {error}") from error
        except StatusError as error:
            raise _refusal(self._url, error.status, error.text) from error
        except WireError as error:
            if not (self._finished or self._stopped):
                raise WireError(f"{self._url}: {error}", retryable=error.retryable) from error
        if not (self._finished or self._stopped):
            raise ServerUnreachable(f"{self._url}: the stream ended without a finish reason")

    def end(self, error: Exception) -> None:
        """Leaves the stream: `read` raises `error`."""
        self._stream.end(error)

    def let_go(self) -> None:
        """Stops all callbacks; see `Stream`."""
        self._on_chunk = _deaf

    def _on_event(self, payload: bytes, read_ns: int) -> bool:
        if payload == DONE or self._finished:
            return True
        chunk = self._reader.read(payload)
        self._finished = chunk.finish is not None
        self._stopped = not self._on_chunk(chunk, read_ns)
        return self._finished or not self._stopped


class SamplerClient:
    """HTTP to one server. The owner of the shared `session` closes it."""

    def __init__(self, url: str, session: aiohttp.ClientSession, *, silence: float) -> None:
        self.url = url.rstrip("/")
        self._session = session
        self._streams = StreamingHttp(self.url, "/generate", silence=silence)
        # An action that ends at a text stop costs an abort, so aborts use the lean connection too.
        self._aborts = StreamingHttp(self.url, "/abort_request", silence=ABORT_SECONDS)

    def open_stream(
        self,
        *,
        reader: ChunkReader,
        on_chunk: OnChunk,
        on_quiet: Callable[[float], None] | None = None,
    ) -> SamplerStream:
        """A stream for `SamplerStream.read`."""
        return SamplerStream(self.url, self._streams, reader, on_chunk, on_quiet)

    def close(self) -> None:
        """Closes idle connections; the shared session is its owner's."""
        self._streams.close()
        self._aborts.close()

    async def abort(self, rid: str) -> None:
        """Raises ServerUnreachable or WireError if the server did not take it."""
        try:
            await self._aborts.post(encode({"rid": rid}), Stream(lambda _payload, _ns: True))
        except StreamBroken as error:
            raise ServerUnreachable(f"{self.url}: {error}") from error
        except StatusError as error:
            raise _refusal(self.url, error.status, error.text) from error

    async def abort_all(self) -> None:
        await self._post("/abort_request", {"abort_all": True}, timeout=10)

    async def pause(self, mode: str) -> None:
        await self._post("/pause_generation", {"mode": mode}, timeout=60)

    async def resume(self) -> None:
        await self._post("/continue_generation", {}, timeout=60)

    async def update_from_disk(self, path: str, version: str, *, flush_cache: bool) -> None:
        """Raises ServerRefused with the server's own message if it could not load the folder."""
        body = {"model_path": path, "weight_version": version, "flush_cache": flush_cache}
        await self._change("/update_weights_from_disk", body, timeout=CONTROL_TIMEOUT)

    async def join_group(
        self, name: str, *, address: str, port: int, backend: str, rank: int, world_size: int
    ) -> None:
        """Returns when the group stands; the server samples nothing until then. rank: the first
        rank of this server."""
        body = {
            "group_name": name,
            "master_address": address,
            "master_port": port,
            "backend": backend,
            "rank_offset": rank,
            "world_size": world_size,
        }
        await self._change("/init_weights_update_group", body, timeout=GROUP_TIMEOUT)

    async def leave_group(self, name: str) -> None:
        """Raises ServerRefused if the server is not in a group of that name."""
        body = {"group_name": name}
        await self._change("/destroy_weights_update_group", body, timeout=10)

    async def begin_update(self) -> None:
        """Runs before the first tensor. Ends an update that was left open."""
        try:
            await self._change("/begin_weight_update", {}, timeout=60)
        except NoRoute:
            return
        except ServerRefused:
            await self.end_update()
            await self._change("/begin_weight_update", {}, timeout=60)

    async def end_update(self) -> None:
        """Runs after the last tensor. Raises ServerRefused if no update is open. A server of an
        older version does not need it."""
        with suppress(NoRoute):
            await self._change("/end_weight_update", {}, timeout=60)

    async def receive(
        self,
        tensors: Sequence[tuple[str, str, Sequence[int]]],
        *,
        group: str,
        version: str,
        flush_cache: bool,
    ) -> None:
        """Receives tensors (name, torch dtype, shape) that rank 0 broadcasts, in their order. The
        server names its weights `version` from then on."""
        body = {
            "names": [name for name, _, _ in tensors],
            "dtypes": [dtype for _, dtype, _ in tensors],
            "shapes": [list(shape) for _, _, shape in tensors],
            "group_name": group,
            "weight_version": version,
            "flush_cache": flush_cache,
        }
        await self._change("/update_weights_from_distributed", body, timeout=GROUP_TIMEOUT)

    async def release_memory(self, tags: Sequence[str]) -> None:
        """Releases memory of the GPU. A server that is not paused and idle dies of it."""
        await self._post("/release_memory_occupation", {"tags": list(tags)}, timeout=60)

    async def resume_memory(self, tags: Sequence[str]) -> None:
        """Takes released memory again. A server dies of a tag that is not released."""
        await self._post("/resume_memory_occupation", {"tags": list(tags)}, timeout=60)

    async def name_weights(self, version: str) -> None:
        """Names the server's weights `version`."""
        body = {"new_version": version, "abort_all_requests": False}
        await self._change("/update_weight_version", body, timeout=60)

    async def load_adapter(self, name: str, path: str) -> None:
        """Loads the adapter (LoRA) in a PEFT folder. Requests that name it are sampled with it."""
        body = {"lora_name": name, "lora_path": path}
        await self._change("/load_lora_adapter", body, timeout=CONTROL_TIMEOUT)

    async def unload_adapter(self, name: str) -> None:
        """Unloads an adapter. The server answers when no request in flight names it."""
        await self._change("/unload_lora_adapter", {"lora_name": name}, timeout=UNLOAD_SECONDS)

    async def adapters(self) -> list[str]:
        """Names of the loaded adapters."""
        models = (await self._get("/v1/models", timeout=10)).get("data") or ()
        return [str(model.get("id")) for model in models if model.get("parent")]

    async def weight_version(self) -> str:
        return str((await self._get("/model_info", timeout=10)).get("weight_version", ""))

    async def load(self) -> Load:
        """The server's load now. Raises NoRoute for a server of an older version."""
        found = (await self._get("/v1/loads", timeout=10)).get("loads")
        ranks = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
        return Load(
            cache_tokens=sum(int(_number(one.get("max_total_num_tokens"))) for one in ranks),
            cache_use=max((_number(one.get("token_usage")) for one in ranks), default=0.0),
            waiting=sum(int(_number(one.get("num_waiting_reqs"))) for one in ranks),
        )

    async def info(self) -> ServerInfo:
        server, model = await asyncio.gather(
            self._get("/server_info", timeout=10), self._get("/model_info", timeout=10)
        )
        if not server.keys() & {"version", "max_req_input_len", "model_path"}:
            message = " ".join(str(server.get("message", server)).split())[:80]
            raise WireError(f"{self.url} answers, but not as SGLang does: {message}")
        longest = server.get("max_req_input_len")
        return ServerInfo(
            incremental=bool(server.get("incremental_streaming_output")),
            reads_text=not server.get("skip_tokenizer_init"),
            reads_images=bool(model.get("has_image_understanding")),
            version=str(server.get("version", "")),
            weight_version=str(model.get("weight_version", "")),
            model_path=str(model.get("model_path", "")),
            max_input_tokens=longest if isinstance(longest, int) else None,
            ranks=_ranks(server),
            memory_share=_number(server.get("mem_fraction_static")),
            keeps_memory=server.get("device") != "cpu"
            and server.get("enable_memory_saver") is False,
            takes_adapters=server.get("enable_lora") is True and server.get("dp_size") in (None, 1),
        )

    async def _change(self, path: str, body: Mapping[str, Any], *, timeout: float) -> None:
        """Raises ServerRefused with the server's own message if the call did not succeed."""
        answer = await self._post(path, body, timeout=timeout)
        if not answer.get("success", False):
            why = answer.get("message") or answer.get("error_message") or answer
            raise ServerRefused(f"{self.url}: {why}")

    async def _post(self, path: str, body: Mapping[str, Any], *, timeout: float) -> dict[str, Any]:
        return await self._request("POST", path, orjson.dumps(body), timeout)

    async def _get(self, path: str, *, timeout: float) -> dict[str, Any]:
        return await self._request("GET", path, None, timeout)

    async def _request(
        self, method: str, path: str, data: bytes | None, timeout: float
    ) -> dict[str, Any]:
        limit = aiohttp.ClientTimeout(total=timeout)
        try:
            async with self._session.request(
                method, self.url + path, data=data, timeout=limit, headers=_JSON
            ) as response:
                text = await _text(response)
                if response.status != 200:
                    raise _refusal(self.url + path, response.status, text)
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise ServerUnreachable(f"{self.url}{path}: {_plainly(error)}") from error
        try:
            answer = orjson.loads(text) if text else {}
        except orjson.JSONDecodeError:
            return {"message": text}
        return answer if isinstance(answer, dict) else {"value": answer}


def _plainly(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted here"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return "it does not speak TLS; write http:// in sampler.endpoints"
    if isinstance(error, aiohttp.ClientResponseError | aiohttp.ClientConnectionResetError):
        return "it answers, but not in HTTP"
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
        return f"no connection: {os.strerror(error.os_error.errno).lower()}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return f"{type(error).__name__}: {error}"


def _ranks(server: Mapping[str, Any]) -> int | None:
    """Ranks of /server_info; a server that does not report them has one."""
    if any(server.get(key) not in (None, 1) for key in ("dp_size", "pp_size")):
        return None
    tensor_parallel = server.get("tp_size") or 1
    return tensor_parallel if isinstance(tensor_parallel, int) else None


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


async def _text(response: aiohttp.ClientResponse) -> str:
    """Body of a response. Raises WireError if it is larger than any answer to a control call."""
    parts = bytearray()
    async for part in response.content.iter_any():
        parts += part
        if len(parts) > MAX_ANSWER_BYTES:
            raise WireError(f"{response.url} answers more than {MAX_ANSWER_BYTES} bytes")
    return parts.decode(errors="replace")


_JSON = {"Content-Type": "application/json"}
_PASSING = (408, 425, 429)
"""Refusals below 500 that will pass."""


def _refusal(where: str, status: int, text: str) -> ServerRefused | WireError:
    if status >= 500 or status in _PASSING:
        return WireError(f"{where} answered {status}: {text[:300]}")
    kind = NoRoute if status == 404 else ServerRefused
    return kind(f"{where} answered {status}: {text[:300]}")
