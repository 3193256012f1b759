"""The control routes: aborts, pauses, weights, cache, and information about the server.

Owns the reading of their bodies and the shape of their answers. Knows only as much of replies as
the scheduler reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from bench.scripted.adapters import Adapters
from bench.scripted.conversation import Conversations
from bench.scripted.faults import Faults
from bench.scripted.scheduling.scheduler import Scheduler
from bench.scripted.types import PauseMode
from bench.scripted.update_group import NOT_FLUSHED, Answer, UpdateGroups, sizes

SGLANG_VERSION = "0.5.23"
"""The release whose wire this server speaks."""
GROUP = "weight_update_group"
"""Default name of a group."""
HEALTH_TIMEOUT_S = 20.0
"""Timeout of /health during a pause, as in the real server."""


class Control:
    """The control routes over one scheduler. `info` is merged into /server_info."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        conversations: Conversations,
        faults: Faults,
        adapters: Adapters,
        reads_images: bool,
        info: Mapping[str, Any],
    ) -> None:
        self._scheduler = scheduler
        self._conversations = conversations
        self._adapters = adapters
        self._stale = faults.stale_weights
        self._failures_left = faults.fail_updates
        self._reads_images = reads_images
        self._info = info
        self.groups = UpdateGroups(scheduler, flush=self._flush, ranks=info.get("tp_size", 1))
        self._failed_joins = faults.fail_joins
        self._model_path = "scripted"

    def routes(self) -> list[web.RouteDef]:
        """All routes but /generate."""
        posts = (
            self.abort_request, self.pause_generation, self.continue_generation,
            self.update_weights_from_disk, self.update_weight_version,
            self.init_weights_update_group, self.destroy_weights_update_group,
            self.begin_weight_update, self.end_weight_update,
            self.update_weights_from_distributed, self.flush_cache,
            self.release_memory_occupation, self.resume_memory_occupation,
            self.load_lora_adapter, self.unload_lora_adapter,
        )  # fmt: skip
        gets = (
            self.flush_cache, self.model_info, self.server_info, self.ready, self.health,
            self.metrics,
        )  # fmt: skip
        return [
            *(web.post(f"/{handler.__name__}", handler) for handler in posts),
            *(web.get(f"/{handler.__name__}", handler) for handler in gets),
            web.get("/health_generate", self.health),
            web.get("/v1/loads", self.loads),
            web.get("/v1/models", self.models),
        ]

    async def abort_request(self, request: web.Request) -> web.Response:
        """Aborts requests. Answers 200 even without a request to abort."""
        body = await _body(request, strings="rid", flags="abort_all")
        self._scheduler.abort(body.get("rid") or "", abort_all=bool(body.get("abort_all")))
        return web.Response()

    async def pause_generation(self, request: web.Request) -> web.Response:
        """Pauses in the given mode; `abort` is the default."""
        body = await _body(request, choices={"mode": list(PauseMode)})
        await self._scheduler.pause(PauseMode(body.get("mode") or PauseMode.ABORT))
        return _json({"message": "Generation paused successfully.", "status": "ok"})

    async def continue_generation(self, request: web.Request) -> web.Response:
        """Ends the pause, after an update that is in progress."""
        await _body(request, flags="torch_empty_cache")
        await self.groups.alone(self._continue)
        return _json({"message": "Generation continued successfully.", "status": "ok"})

    async def update_weights_from_disk(self, request: web.Request) -> web.Response:
        """Takes over the weight version if the path exists."""
        body = await _body(
            request, needed="model_path", strings="weight_version model_path",
            flags="flush_cache abort_all_requests",
        )  # fmt: skip
        path, version = body["model_path"], body.get("weight_version")
        if body.get("abort_all_requests"):
            self._scheduler.abort(abort_all=True)
        if self._failures_left:
            self._failures_left -= 1
            return _updated(False, "Failed to update weights: this failure is scripted.")
        if not await asyncio.to_thread(Path(path).is_dir):
            return _updated(False, f"Failed to get weights iterator: no folder at {path}.")
        self._scheduler.memory.load()
        flush = self._flush if body.get("flush_cache", True) else lambda: True
        async with self._scheduler.occupied():
            pass
        flushed = await self._scheduler.load_weights(None if self._stale else version, flush=flush)
        if not flushed:
            return _updated(False, NOT_FLUSHED)
        self._model_path = path
        named = "" if version is None else f" Weight version updated to {version}."
        return _updated(True, f"Succeeded to update model weights.{named}")

    async def update_weight_version(self, request: web.Request) -> web.Response:
        """Renames the version of the loaded weights. Aborts all requests by default."""
        body = await _body(
            request, needed="new_version", strings="new_version", flags="abort_all_requests"
        )
        version = body["new_version"]
        if body.get("abort_all_requests", True):
            self._scheduler.abort(abort_all=True)
        if not self._stale:
            self._scheduler.rename_weights(version)
        message = f"Weight version updated to {version}"
        return _json({"success": True, "message": message, "new_version": version})

    async def init_weights_update_group(self, request: web.Request) -> web.Response:
        """Joins a group of processes. Answers when the group is complete."""
        body = await _body(
            request, needed="master_address master_port rank_offset world_size",
            strings="master_address group_name backend",
            numbers="master_port rank_offset world_size",
        )  # fmt: skip
        if self._failed_joins:
            self._failed_joins -= 1
            return _changed(
                False, "Failed to initialize custom process group: this failure is scripted."
            )
        success, message = await self.groups.init(
            address=body["master_address"],
            port=body["master_port"],
            rank=body["rank_offset"],
            world_size=body["world_size"],
            name=body.get("group_name") or GROUP,
        )
        return _changed(success, message)

    async def destroy_weights_update_group(self, request: web.Request) -> web.Response:
        """Leaves a group."""
        body = await _body(request, strings="group_name")
        return _changed(*await self.groups.destroy(body.get("group_name") or GROUP))

    async def begin_weight_update(self, request: web.Request) -> web.Response:
        """Opens an update over a group."""
        await _body(request, choices={"selector": ["target", "draft", "all"]})
        return _changed(*await self.groups.begin())

    async def end_weight_update(self, request: web.Request) -> web.Response:
        """Closes the update."""
        await _body(request)
        return _changed(*await self.groups.end())

    async def update_weights_from_distributed(self, request: web.Request) -> web.Response:
        """Receives tensors from rank 0. Answers when they have come."""
        body = await _body(
            request, needed="names dtypes shapes", lists="names dtypes shapes",
            strings="group_name weight_version", flags="flush_cache",
        )  # fmt: skip
        success, message = await self.groups.receive(
            sizes(body["names"], body["dtypes"], body["shapes"]),
            name=body.get("group_name") or GROUP,
            version=None if self._stale else body.get("weight_version"),
            flush=bool(body.get("flush_cache", True)),
        )
        return _changed(success, message)

    async def release_memory_occupation(self, request: web.Request) -> web.Response:
        """Releases memory, with the prefix cache in it."""
        body = await _body(request, lists="tags")
        memory = self._scheduler.memory
        memory.release(body.get("tags") or (), idle=self._scheduler.can_flush())
        self._forget_cache()
        return _after_death(request) if memory.died else _json(None)

    async def resume_memory_occupation(self, request: web.Request) -> web.Response:
        """Takes released memory again."""
        body = await _body(request, lists="tags")
        memory = self._scheduler.memory
        memory.resume(body.get("tags") or ())
        return _after_death(request) if memory.died else _json(None)

    async def load_lora_adapter(self, request: web.Request) -> web.Response:
        """Loads an adapter beside the weights, also while replies grow."""
        body = await _body(
            request, needed="lora_name lora_path", strings="lora_name lora_path", flags="pinned"
        )
        return self._adapted(*await self._adapters.load(body["lora_name"], body["lora_path"]))

    async def unload_lora_adapter(self, request: web.Request) -> web.Response:
        """Unloads an adapter. Answers after the last reply that it samples."""
        body = await _body(request, needed="lora_name", strings="lora_name")
        return self._adapted(*await self._adapters.unload(body["lora_name"]))

    async def models(self, _request: web.Request) -> web.Response:
        """The model and its loaded adapters."""
        every = {self._model_path: None, **dict.fromkeys(self._adapters.loaded, self._model_path)}
        cards = [{"id": name, "object": "model", "parent": of} for name, of in every.items()]
        return _json({"object": "list", "data": cards})

    async def flush_cache(self, _request: web.Request) -> web.Response:
        """Empties the prefix cache unless a reply holds some of it."""
        if self._flush():
            return web.Response(text="Cache flushed.\n")
        return web.Response(text="Flush cache failed.\n", status=400)

    async def model_info(self, _request: web.Request) -> web.Response:
        """The loaded model and its version."""
        return _json(
            {
                "model_path": self._model_path, "served_model_name": "scripted",
                "tokenizer_path": None, "is_generation": True,
                "preferred_sampling_params": None, "load_format": "auto",
                "weight_version": self._scheduler.weight_version,
                "has_image_understanding": self._reads_images, "has_audio_understanding": False,
                "model_type": "scripted", "architectures": ["Scripted"],
            }
        )  # fmt: skip

    async def server_info(self, _request: web.Request) -> web.Response:
        """Options of the server, as far as clients use them. The real server gets some
        of them from its scheduler, so this waits for the scheduler."""
        async with self._scheduler.occupied():
            pass
        return _json({**self._info, "version": SGLANG_VERSION, "internal_states": [{}]})

    async def ready(self, _request: web.Request) -> web.Response:
        """Answers at once: 503 during a pause, when a new request would wait."""
        return web.Response(status=503 if self._scheduler.paused else 200)

    async def health(self, _request: web.Request) -> web.Response:
        """Hangs during a pause. A client that pauses must use /ready or /model_info."""
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S):
                await self._scheduler.until_resumed()
        except TimeoutError:
            return web.Response(status=503)
        return web.Response()

    async def loads(self, _request: web.Request) -> web.Response:
        """Numbers of running and waiting replies, and the use of the cache. A server without a
        modelled GPU reports an unused cache without a size."""
        running, waiting = self._scheduler.running, self._scheduler.waiting
        batch = self._scheduler.batch
        load = {
            "dp_rank": 0, "num_running_reqs": running, "num_waiting_reqs": waiting,
            "num_total_reqs": running + waiting, "token_usage": 0.0,
        }  # fmt: skip
        if batch is not None:
            load |= {
                "num_used_tokens": batch.cache.held, "max_total_num_tokens": batch.cache.capacity,
                "token_usage": round(batch.cache.usage, 4),
                "cache_hit_rate": round(batch.hit_rate, 4),
            }  # fmt: skip
        return _json(
            {
                "timestamp": datetime.now(UTC).isoformat(), "version": SGLANG_VERSION,
                "accelerator": None, "num_accelerators": 1, "loads": [load],
            }
        )  # fmt: skip

    async def metrics(self, _request: web.Request) -> web.Response:
        """Some of the real server's series for Prometheus: the number of sampled tokens, and those
        of a modelled GPU's cache."""
        series: list[tuple[str, str, float]] = [
            ("generation_tokens_total", "counter", self._scheduler.sampled)
        ]
        batch = self._scheduler.batch
        if batch is not None:
            series += [
                ("token_usage", "gauge", batch.cache.usage),
                ("cache_hit_rate", "gauge", batch.hit_rate),
                ("cached_tokens_total", "counter", batch.cached_tokens),
                ("num_retracted_requests_total", "counter", batch.retracted),
            ]
        lines = [
            f'# TYPE sglang:{name} {kind}\nsglang:{name}{{model_name="scripted"}} {float(value)}\n'
            for name, kind, value in series
        ]
        return web.Response(text="".join(lines))

    async def _continue(self) -> Answer:
        await self._scheduler.resume()
        return True, ""

    def _adapted(self, success: bool, message: str) -> web.Response:
        body = {
            "success": success, "error_message": message,
            "loaded_adapters": dict(self._adapters.loaded),
        }  # fmt: skip
        return _json(body, status=200 if success else 400)

    def _flush(self) -> bool:
        if not self._scheduler.can_flush():
            return False
        self._forget_cache()
        return True

    def _forget_cache(self) -> None:
        self._conversations.forget_cache()
        if self._scheduler.batch is not None:
            self._scheduler.batch.cache.flush()


async def _body(
    request: web.Request,
    *,
    needed: str = "",
    strings: str = "",
    flags: str = "",
    numbers: str = "",
    lists: str = "",
    choices: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """The JSON object of a request. The other arguments are keys: those that must be there, and
    those of each type; choices: values by key. Raises HTTPBadRequest for another body."""
    try:
        body = orjson.loads(await request.read() or b"{}")
    except orjson.JSONDecodeError as error:
        raise _bad_request(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise _bad_request("the body is not a JSON object")
    given = {key: value for key, value in body.items() if value is not None}
    for key in needed.split():
        if key not in given:
            raise _bad_request(f"{key} is missing")
    typed = ((strings, str), (flags, bool), (numbers, int), (lists, list))
    wrong = [
        key
        for keys, kind in typed
        for key in keys.split()
        if key in given and type(given[key]) is not kind
    ]
    wrong += [
        key for key, values in (choices or {}).items() if given.get(key, values[0]) not in values
    ]
    if wrong:
        raise _bad_request(f"{wrong[0]} has an invalid value: {body[wrong[0]]!r}")
    return body


def _bad_request(message: str) -> web.HTTPBadRequest:
    return web.HTTPBadRequest(
        body=orjson.dumps({"object": "error", "message": message, "code": 400}),
        content_type="application/json",
    )


def _updated(success: bool, message: str) -> web.Response:
    return _changed(success, message, num_paused_requests=0)


def _changed(success: bool, message: str, **more: int) -> web.Response:
    body = {"success": success, "message": message, **more}
    return _json(body, status=200 if success else 400)


def _after_death(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


def _json(body: Mapping[str, object] | None, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")
