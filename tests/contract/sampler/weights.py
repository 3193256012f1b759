"""New weights, with and without a pause."""

from __future__ import annotations

import asyncio

from tests.contract.sampler.target import Target, finished


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
