"""Adapters (LoRA): loaded, named by requests and unloaded beside the weights.

The weights of the target are two folders of adapters.
"""

from __future__ import annotations

import asyncio
from typing import Any

from engine.core.sampler.wire.request import NO_ADAPTER
from tests.contract.sampler.target import Target, finished

LONG = 300
"""Tokens of a stream that is still running when its adapter is to be unloaded."""


async def load(t: Target, name: str, which: int = 0) -> tuple[int, Any]:
    """Loads one of the two adapters under a name."""
    body = {"lora_name": name, "lora_path": str(t.weights[which])}
    return await t.client.post("/load_lora_adapter", body)


async def unload(t: Target, name: str) -> tuple[int, Any]:
    """Unloads an adapter."""
    return await t.client.post("/unload_lora_adapter", {"lora_name": name})


async def loaded(t: Target) -> set[str]:
    """Names of the loaded adapters."""
    models = (await t.client.get("/v1/models"))[1]["data"]
    return {one["id"] for one in models if one["parent"] is not None}


async def check_an_adapter_comes_and_goes(t: Target) -> None:
    """load, list, generate, unload; a name that is loaded is refused, and one that is not."""
    name = f"one.{next(t.serial)}"
    status, answer = await load(t, name)
    assert (status, answer["success"]) == (200, True), answer
    assert name in answer["loaded_adapters"]
    status, answer = await load(t, name)
    assert (status, answer["success"]) == (400, False)
    assert "already loaded" in answer["error_message"]
    assert name in await loaded(t)
    status, answer = await t.client.post("/generate", t.body("named", 8, lora_path=name))
    assert (status, answer["meta_info"]["completion_tokens"]) == (200, 8), answer
    assert (await unload(t, name))[0] == 200
    assert name not in await loaded(t)
    assert (await unload(t, name))[0] == 400


async def check_a_missing_folder_is_no_adapter(t: Target) -> None:
    """A folder that is not there is refused, and nothing is loaded."""
    name = f"missing.{next(t.serial)}"
    body = {"lora_name": name, "lora_path": str(t.weights[0] / "missing")}
    status, answer = await t.client.post("/load_lora_adapter", body)
    assert (status, answer["success"]) == (400, False)
    assert answer["error_message"]
    assert name not in await loaded(t)


async def check_an_unknown_adapter_is_refused(t: Target) -> None:
    """A request that names an adapter which was never loaded is refused for good."""
    body = t.body("unknown", 8, lora_path="never.1")
    status, answer = await t.client.post("/generate", body)
    assert status == 400
    assert NO_ADAPTER in str(answer)
    stream = await t.client.stream(t.body("unknown", 8, lora_path="never.1"))
    assert (stream.status, stream.done) == (200, True)
    assert stream.last["error"]["retryable"] is False
    assert NO_ADAPTER in stream.last["error"]["message"]


async def check_load_and_unload_beside_a_reply(t: Target) -> None:
    """A load does not wait for a reply in flight. An unload of its adapter does, and the reply goes
    on to its end, although the server's weights are renamed meanwhile."""
    serial = next(t.serial)
    old, new, before = f"old.{serial}", f"new.{serial}", await t.version()
    assert (await load(t, old))[0] == 200
    body = t.body("flight", LONG, lora_path=old)
    async with t.client.streaming(body, after=5) as (stream, task):
        assert (await load(t, new, 1))[0] == 200
        renamed = {"new_version": new, "abort_all_requests": False}
        assert (await t.client.post("/update_weight_version", renamed))[0] == 200
        assert not task.done()
        gone = asyncio.create_task(unload(t, old))
        t.check_whole(await finished(task))
        assert (await gone)[0] == 200
    spans = stream.last["meta_info"]["weight_versions"]
    assert [span["version"] for span in spans] == [before, new]
    assert await loaded(t) >= {new}
    assert old not in await loaded(t)
    assert (await unload(t, new))[0] == 200


async def check_a_load_in_a_pause(t: Target) -> None:
    """A pause holds back neither a load nor an unload."""
    name = f"paused.{next(t.serial)}"
    async with t.paused("retract"):
        assert (await load(t, name))[0] == 200
        assert (await unload(t, name))[0] == 200


async def check_an_adapter_that_was_unloaded_comes_back(t: Target) -> None:
    """A request that names an unloaded adapter loads it again."""
    name = f"back.{next(t.serial)}"
    assert (await load(t, name))[0] == 200
    assert (await unload(t, name))[0] == 200
    status, answer = await t.client.post("/generate", t.body("back", 8, lora_path=name))
    assert status == 200, answer
    assert name in await loaded(t)
    assert (await unload(t, name))[0] == 200


async def check_each_adapter_has_its_prefix_cache(t: Target) -> None:
    """A prompt that one adapter has seen is new to another."""
    serial = next(t.serial)
    first, second = f"first.{serial}", f"second.{serial}"
    for which, name in enumerate((first, second)):
        assert (await load(t, name, which))[0] == 200
    turn = t.body("turn", 8, lora_path=first, routing_key=f"cached-{serial}")
    said = (await t.client.post("/generate", turn))[1]["output_ids"]
    cached = []
    for name in (first, second):
        longer = [*turn["input_ids"], *said, 5, 6]
        body = t.body("turn", 8, lora_path=name, routing_key=turn["routing_key"])
        answer = (await t.client.post("/generate", {**body, "input_ids": longer}))[1]
        cached.append(answer["meta_info"]["cached_tokens"])
    assert cached[0] >= len(turn["input_ids"]) - 1
    assert cached[1] == 0
    for name in (first, second):
        assert (await unload(t, name))[0] == 200
