"""New weights, with and without a pause."""

from __future__ import annotations

import asyncio

from tests.contract.sampler.target import Target, finished

LONG = 300
"""Tokens of a stream that is still running when it is paused, on a busy machine too."""


async def check_update_in_a_pause(t: Target) -> None:
    """pause, update, continue: later tokens carry the new version, and so does the server."""
    before, after = await t.version(), f"update-{next(t.serial)}"
    async with t.client.streaming(t.body("update", LONG), after=5) as (stream, task):
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
    async with t.client.streaming(t.body("noflush", LONG), after=5) as (stream, task):
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


async def check_an_update_over_a_group_has_an_order(t: Target) -> None:
    """begin, tensors, end; and a group is joined before and left after."""

    async def said(path: str, body: dict[str, object]) -> tuple[int, object]:
        status, answer = await t.client.post(path, body)
        return status, answer.get("message")

    tensors: dict[str, object] = {"names": ["w"], "dtypes": ["float32"], "shapes": [[4]]}
    closed = "no weight-update session is open; call begin_weight_update() first"
    outside = "must run between begin_weight_update() and end_weight_update()"
    nowhere = "Group nowhere not in []. Please call `init_weights_update_group` first."
    update = "/update_weights_from_distributed"
    gone = (400, "The group to be destroyed does not exist.")
    version = await t.version()
    assert await said("/end_weight_update", {}) == (400, closed)
    assert await said(update, tensors) == (400, f"update_weights_from_distributed {outside}")
    assert await said("/begin_weight_update", {}) == (200, "Success")
    assert await said("/begin_weight_update", {}) == (
        400,
        "a weight-update session is already open; call end_weight_update() first",
    )
    assert await said(update, {**tensors, "group_name": "nowhere", "weight_version": "x"}) == (
        400,
        f"Failed to receive weights: {nowhere}",
    )
    assert await said("/end_weight_update", {}) == (200, "Success")
    assert await said("/destroy_weights_update_group", {"group_name": "nowhere"}) == gone
    assert await t.version() == version


async def check_bad_bodies_of_a_group(t: Target) -> None:
    """What is missing is a 400."""
    assert (await t.client.post("/init_weights_update_group", {}))[0] == 400
    assert (await t.client.post("/update_weights_from_distributed", {}))[0] == 400
    assert (await t.client.post("/begin_weight_update", {"selector": "some"}))[0] == 400
