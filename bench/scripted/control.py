"""The control routes: aborts, pauses, weights, cache, and what the server says about itself.

Owns the reading of their bodies and the shape of their answers. Knows nothing of replies beyond
what the scheduler reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import orjson
from aiohttp import web

from bench.scripted.conversation import Conversations
from bench.scripted.faults import Faults
from bench.scripted.scheduler import Scheduler
from bench.scripted.types import PauseMode
from bench.scripted.update_group import NOT_FLUSHED, Answer, UpdateGroups, sizes

SGLANG_VERSION = "0.5.23"
"""The release whose wire this server speaks."""
GROUP = "weight_update_group"
"""The name of a group that is given none."""
HEALTH_TIMEOUT_S = 20.0
"""How long /health hangs during a pause before it gives up, as in the real server."""


class Control:
    """The control routes over one scheduler. `info` is merged into /server_info."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        conversations: Conversations,
        faults: Faults,
        reads_images: bool,
        info: Mapping[str, object],
    ) -> None:
        self._scheduler = scheduler
        self._conversations = conversations
        self._stale = faults.stale_weights
        self._failures_left = faults.fail_updates
        self._reads_images = reads_images
        self._info = info
        self.groups = UpdateGroups(
            scheduler, flush=self._flush, ranks=cast(int, info.get("tp_size", 1))
        )
        self._failed_joins = faults.fail_joins
        self._model_path = "scripted"

    def routes(self) -> list[web.RouteDef]:
        """Everything but /generate."""
        return [
            web.post("/abort_request", self.abort_request),
            web.post("/pause_generation", self.pause_generation),
            web.post("/continue_generation", self.continue_generation),
            web.post("/update_weights_from_disk", self.update_weights_from_disk),
            web.post("/update_weight_version", self.update_weight_version),
            web.post("/init_weights_update_group", self.init_weights_update_group),
            web.post("/destroy_weights_update_group", self.destroy_weights_update_group),
            web.post("/begin_weight_update", self.begin_weight_update),
            web.post("/end_weight_update", self.end_weight_update),
            web.post("/update_weights_from_distributed", self.update_weights_from_distributed),
            web.get("/flush_cache", self.flush_cache),
            web.post("/flush_cache", self.flush_cache),
            web.get("/model_info", self.model_info),
            web.get("/server_info", self.server_info),
            web.get("/ready", self.ready),
            web.get("/health", self.health),
            web.get("/health_generate", self.health),
            web.get("/v1/loads", self.loads),
            web.get("/metrics", self.metrics),
        ]

    async def abort_request(self, request: web.Request) -> web.Response:
        """Always 200, whether or not there was anything to abort."""
        body = await _body(request, rid=_is_str, abort_all=_is_bool)
        self._scheduler.abort(
            cast(str, body.get("rid") or ""), abort_all=bool(body.get("abort_all"))
        )
        return web.Response()

    async def pause_generation(self, request: web.Request) -> web.Response:
        """Pause in the given mode, `abort` unless told otherwise."""
        body = await _body(request, mode=lambda value: value in list(PauseMode))
        await self._scheduler.pause(PauseMode(cast(str, body.get("mode") or PauseMode.ABORT)))
        return _json({"message": "Generation paused successfully.", "status": "ok"})

    async def continue_generation(self, request: web.Request) -> web.Response:
        """End the pause; not while an update in the pause is under way."""
        await _body(request, torch_empty_cache=_is_bool)
        await self.groups.alone(self._continue)
        return _json({"message": "Generation continued successfully.", "status": "ok"})

    async def update_weights_from_disk(self, request: web.Request) -> web.Response:
        """Take over the weight version if the path is there."""
        body = await _body(
            request,
            model_path=_is_str,
            weight_version=_is_str,
            flush_cache=_is_bool,
            abort_all_requests=_is_bool,
        )
        path = body.get("model_path")
        if path is None:
            raise _bad_request("model_path is missing")
        if body.get("abort_all_requests"):
            self._scheduler.abort(abort_all=True)
        if self._failures_left:
            self._failures_left -= 1
            return _updated(False, "Failed to update weights: this failure is scripted.")
        if not await asyncio.to_thread(Path(cast(str, path)).is_dir):
            return _updated(False, f"Failed to get weights iterator: no folder at {path}.")
        version = cast("str | None", body.get("weight_version"))
        flush = self._flush if body.get("flush_cache", True) else lambda: True
        async with self._scheduler.occupied():
            pass
        flushed = await self._scheduler.load_weights(None if self._stale else version, flush=flush)
        if not flushed:
            return _updated(False, NOT_FLUSHED)
        self._model_path = cast(str, path)
        named = "" if version is None else f" Weight version updated to {version}."
        return _updated(True, f"Succeeded to update model weights.{named}")

    async def update_weight_version(self, request: web.Request) -> web.Response:
        """Rename the version of the weights that are loaded; aborts everything by default."""
        body = await _body(request, new_version=_is_str, abort_all_requests=_is_bool)
        version = body.get("new_version")
        if version is None:
            raise _bad_request("new_version is missing")
        if body.get("abort_all_requests", True):
            self._scheduler.abort(abort_all=True)
        if not self._stale:
            self._scheduler.rename_weights(cast(str, version))
        message = f"Weight version updated to {version}"
        return _json({"success": True, "message": message, "new_version": version})

    async def init_weights_update_group(self, request: web.Request) -> web.Response:
        """Join a group of processes; answers when it stands."""
        body = await _body(
            request,
            needed=("master_address", "master_port", "rank_offset", "world_size"),
            master_address=_is_str,
            master_port=_is_int,
            rank_offset=_is_int,
            world_size=_is_int,
            group_name=_is_str,
            backend=_is_str,
        )
        if self._failed_joins:
            self._failed_joins -= 1
            return _changed(
                False, "Failed to initialize custom process group: this failure is scripted."
            )
        success, message = await self.groups.init(
            address=cast(str, body["master_address"]),
            port=cast(int, body["master_port"]),
            rank=cast(int, body["rank_offset"]),
            world_size=cast(int, body["world_size"]),
            name=cast(str, body.get("group_name") or GROUP),
        )
        return _changed(success, message)

    async def destroy_weights_update_group(self, request: web.Request) -> web.Response:
        """Leave a group."""
        body = await _body(request, group_name=_is_str)
        return _changed(*await self.groups.destroy(cast(str, body.get("group_name") or GROUP)))

    async def begin_weight_update(self, request: web.Request) -> web.Response:
        """Open an update over a group."""
        await _body(request, selector=lambda value: value in ("target", "draft", "all"))
        return _changed(*await self.groups.begin())

    async def end_weight_update(self, request: web.Request) -> web.Response:
        """Close it."""
        await _body(request)
        return _changed(*await self.groups.end())

    async def update_weights_from_distributed(self, request: web.Request) -> web.Response:
        """Take tensors from rank 0; answers when they came."""
        body = await _body(
            request,
            needed=("names", "dtypes", "shapes"),
            names=_is_list,
            dtypes=_is_list,
            shapes=_is_list,
            group_name=_is_str,
            weight_version=_is_str,
            flush_cache=_is_bool,
        )
        tensors = sizes(
            cast("list[str]", body["names"]),
            cast("list[str]", body["dtypes"]),
            cast("list[list[int]]", body["shapes"]),
        )
        success, message = await self.groups.receive(
            tensors,
            name=cast(str, body.get("group_name") or GROUP),
            version=None if self._stale else cast("str | None", body.get("weight_version")),
            flush=bool(body.get("flush_cache", True)),
        )
        return _changed(success, message)

    async def flush_cache(self, _request: web.Request) -> web.Response:
        """Forget the prefix cache, unless a reply holds some of it."""
        if self._flush():
            return web.Response(text="Cache flushed.\n")
        return web.Response(text="Flush cache failed.\n", status=400)

    async def model_info(self, _request: web.Request) -> web.Response:
        """What is loaded, under which version."""
        return _json(
            {
                "model_path": self._model_path,
                "served_model_name": "scripted",
                "tokenizer_path": None,
                "is_generation": True,
                "preferred_sampling_params": None,
                "weight_version": self._scheduler.weight_version,
                "load_format": "auto",
                "has_image_understanding": self._reads_images,
                "has_audio_understanding": False,
                "model_type": "scripted",
                "architectures": ["Scripted"],
            }
        )

    async def server_info(self, _request: web.Request) -> web.Response:
        """How the server was started; of the real one's many keys those that clients use. The real
        one asks its scheduler for some of them."""
        async with self._scheduler.occupied():
            pass
        return _json({**self._info, "version": SGLANG_VERSION, "internal_states": [{}]})

    async def ready(self, _request: web.Request) -> web.Response:
        """Answers at once; 503 during a pause, when a new request would have to wait."""
        return web.Response(status=503 if self._scheduler.paused else 200)

    async def health(self, _request: web.Request) -> web.Response:
        """Hangs during a pause: a client that pauses asks /ready or /model_info instead."""
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S):
                await self._scheduler.until_resumed()
        except TimeoutError:
            return web.Response(status=503)
        return web.Response()

    async def loads(self, _request: web.Request) -> web.Response:
        """How many replies run and wait."""
        running, waiting = self._scheduler.running, self._scheduler.waiting
        load = {
            "dp_rank": 0,
            "num_running_reqs": running,
            "num_waiting_reqs": waiting,
            "num_total_reqs": running + waiting,
            "token_usage": 0.0,
        }
        return _json(
            {
                "timestamp": datetime.now(UTC).isoformat(),
                "version": SGLANG_VERSION,
                "accelerator": None,
                "num_accelerators": 1,
                "loads": [load],
            }
        )

    async def metrics(self, _request: web.Request) -> web.Response:
        """For Prometheus; of the real server's many series the one that tells what was sampled."""
        name = "sglang:generation_tokens_total"
        count = self._scheduler.sampled
        return web.Response(
            text=f'# TYPE {name} counter\n{name}{{model_name="scripted"}} {float(count)}\n'
        )

    async def _continue(self) -> Answer:
        await self._scheduler.resume()
        return True, ""

    def _flush(self) -> bool:
        if not self._scheduler.can_flush():
            return False
        self._conversations.forget_cache()
        return True


def _is_str(value: object) -> bool:
    return isinstance(value, str)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list(value: object) -> bool:
    return isinstance(value, list)


async def _body(
    request: web.Request, *, needed: Sequence[str] = (), **checks: Callable[[object], bool]
) -> dict[str, object]:
    try:
        body = orjson.loads(await request.read() or b"{}")
    except orjson.JSONDecodeError as error:
        raise _bad_request(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise _bad_request("the body is not a JSON object")
    for key in needed:
        if body.get(key) is None:
            raise _bad_request(f"{key} is missing")
    for key, check in checks.items():
        if body.get(key) is not None and not check(body[key]):
            raise _bad_request(f"{key} has an invalid value: {body[key]!r}")
    return body


def _bad_request(message: str) -> web.HTTPBadRequest:
    return web.HTTPBadRequest(
        body=orjson.dumps({"object": "error", "message": message, "code": 400}),
        content_type="application/json",
    )


def _updated(success: bool, message: str) -> web.Response:
    body = {"success": success, "message": message, "num_paused_requests": 0}
    return _json(body, status=200 if success else 400)


def _changed(success: bool, message: str) -> web.Response:
    return _json({"success": success, "message": message}, status=200 if success else 400)


def _json(body: Mapping[str, object], status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")
