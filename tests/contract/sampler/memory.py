"""Memory of the GPU, released and resumed around new weights.

On a CPU the real server has nothing to release, and keeps its weights. It checks its own books all
the same.
"""

from __future__ import annotations

from tests.contract.sampler.target import Target, finished

LATER = ["kv_cache", "cuda_graph"]


async def check_memory_is_released_in_a_pause(t: Target) -> None:
    """pause, release, resume with new weights in between, continue: the stream goes on."""
    after = f"resumed-{next(t.serial)}"
    body = t.body("memory", 300)
    async with t.client.streaming(body, after=5) as (_, task):
        async with t.paused("retract"):
            tags = {"tags": ["weights", *LATER]}
            assert await t.client.post("/release_memory_occupation", tags) == (200, None)
            assert (await t.client.get("/ready"))[0] == 503
            named = {"new_version": "released", "abort_all_requests": False}
            assert (await t.client.post("/update_weight_version", named))[0] == 200
            assert await t.version() == "released"
            weights = {"tags": ["weights"]}
            assert await t.client.post("/resume_memory_occupation", weights) == (200, None)
            update = {"model_path": str(t.weights[0]), "weight_version": after}
            assert (await t.client.post("/update_weights_from_disk", update))[0] == 200
            assert await t.client.post("/resume_memory_occupation", {"tags": LATER}) == (200, None)
        t.check_whole(await finished(task))
    assert await t.version() == after


async def check_aborts_reach_a_released_server(t: Target) -> None:
    """A request that waits in the queue ends while the memory is released."""
    body = t.body("leaves")
    tags = {"tags": ["weights", *LATER]}
    async with t.client.streaming(body, after=5) as (_, task), t.paused("retract"):
        await t.client.post("/release_memory_occupation", tags)
        await t.client.post("/abort_request", {"abort_all": True})
        assert ((await finished(task)).finish or {})["type"] == "abort"
        await t.client.post("/resume_memory_occupation", {"tags": ["weights"]})
        update = {"model_path": str(t.weights[0]), "weight_version": "back"}
        assert (await t.client.post("/update_weights_from_disk", update))[0] == 200
        await t.client.post("/resume_memory_occupation", {"tags": LATER})
