"""New weights: in order, on every sampler, and never half done."""

from __future__ import annotations

import asyncio
import os
import uuid
from urllib.parse import urlsplit

import grpc
import pytest

from bench.scripted import Faults, ScriptedSampler, Timing
from engine.errors import StartupError
from tests.integration.engine.conftest import MakeWorld, World
from tests.support.engines import Learner
from tests.support.waiting import PATIENCE, holds_for, until
from tests.support.weights import safetensors
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.policy.v1 import policy_pb2
from toolwright.rpc.channel import call, may_retry, open_channel
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.types import WeightVersion

pytestmark = pytest.mark.quick

RUN = {"steps": 9, "groups_per_step": 1, "group_size": 1}


def v(version: WeightVersion, step: int) -> WeightVersion:
    return WeightVersion(lineage=version.lineage, step=step)


def fresh(step: int) -> WeightVersion:
    return WeightVersion(lineage=uuid.uuid4().hex[:8], step=step)


def sampler_version(here: World) -> str:
    return here.sampler.scheduler.weight_version


async def test_the_first_version_is_the_policy_and_stays_over_a_restart(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        version = await run.learner.version()
        assert version.step == 0
        assert sampler_version(here) == str(version)
        answer = await call(run.learner.policy.GetPolicy, policy_pb2.GetPolicyRequest(), timeout=9)
        assert answer.path == str(here.tables["policy"]["model"])
        assert answer.tokenizer_hash == here.codec.hash
        await run.learner.publish(v(version, 1), here.weights("1"))
    here.sampler.scheduler.rename_weights("other")
    async with here.engine() as run:
        assert await run.learner.version() == v(version, 1)
        assert sampler_version(here) == str(v(version, 1))


async def test_a_publish_reaches_the_sampler_and_may_come_twice(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        version = await run.learner.version()
        answer = await run.learner.publish(v(version, 1), here.weights("1"))
        assert answer.samplers == 1
        assert answer.paused.ToTimedelta().total_seconds() > 0
        assert sampler_version(here) == str(v(version, 1))
        assert not here.sampler.scheduler.paused
        again = await run.learner.publish(v(version, 1), here.weights("1"))
        assert (again.samplers, again.version) == (0, answer.version)
        await run.learner.publish(v(version, 5), here.weights("5"))  # steps may be left out
        assert (await run.learner.status()).version.step == 5


async def test_what_is_no_next_version_is_refused(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        version = await run.learner.version()
        await run.learner.publish(v(version, 3), here.weights("3"))

        async def refused(
            given: WeightVersion, reason: int, parent: WeightVersion | None = None
        ) -> ServiceError:
            with pytest.raises(ServiceError) as caught:
                await run.learner.publish(given, here.weights("x"), parent)
            assert caught.value.reason == reason, caught.value
            assert not may_retry(caught.value)
            return caught.value

        error = await refused(v(version, 2), reasons.ERROR_REASON_WRONG_VERSION)
        assert f"{v(version, 2)} is not newer than {v(version, 3)}" in str(error)
        wrong = reasons.ERROR_REASON_WRONG_LINEAGE
        assert "names no parent" in str(await refused(fresh(4), wrong))
        stranger = WeightVersion(lineage="stranger", step=2)
        assert "never published here" in str(await refused(fresh(3), wrong, stranger))
        with pytest.raises(ServiceError, match="no folder /no/such") as caught:
            await run.learner.publish(v(version, 4), here.folder / "/no/such")
        assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
        assert sampler_version(here) == str(v(version, 3))


async def test_a_folder_that_is_not_whole_is_refused_and_the_run_goes_on(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        version = await run.learner.version()
        (first,) = await run.learner.lease(version)
        asked = list(here.sampler.requests)
        cut = here.weights("cut")
        os.truncate(cut / "model.safetensors", 20)
        with pytest.raises(
            ServiceError, match=r"model\.safetensors cannot be read: it has 20 bytes"
        ) as caught:
            await run.learner.publish(v(version, 1), cut)
        assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
        assert "whole Hugging Face folder" in caught.value.fix
        assert not may_retry(caught.value)
        assert sampler_version(here) == str(version) == str(await run.learner.version())
        assert len(here.sampler.requests) == len(asked)
        await run.learner.publish(v(version, 1), here.weights("cut"))  # written again, whole
        assert sampler_version(here) == str(v(version, 1))
        await run.learner.lease(v(version, 1), after=first.info.sequence_number)


async def test_another_policy_is_refused_before_a_sampler_hears_of_it(world: MakeWorld) -> None:
    """Also after a restart, which finds the shape in the newest folder."""
    here = await world(run=RUN)
    _, go, loaded = slowed(here)
    go.set()
    for life in (0, 1):
        async with here.engine() as run:
            version = await run.learner.version()
            await run.learner.publish(v(version, 1 + 2 * life), here.weights(f"{life}"))
            before = list(loaded)
            other = here.weights("other")
            (other / "model.safetensors").write_bytes(safetensors({"w": 32}))
            with pytest.raises(
                ServiceError, match=r"tensor w has the shape \[8\].* serve \[4\]"
            ) as no:
                await run.learner.publish(v(version, 2 + 2 * life), other)
            assert no.value.code is grpc.StatusCode.INVALID_ARGUMENT
            assert "run.folder" in no.value.fix
            assert not may_retry(no.value)
            here.weights("other")
            (other / "config.json").write_text('{"model_type": "qwen2"}', encoding="utf-8")
            with pytest.raises(ServiceError, match="model_type = 'qwen2'"):
                await run.learner.publish(v(version, 2 + 2 * life), other)
            assert loaded == before
            assert sampler_version(here) == str(v(version, 1 + 2 * life))
            await run.learner.publish(v(version, 2 + 2 * life), here.weights("other"))


async def test_newest_weights_that_a_power_cut_emptied_are_named_at_the_start(
    world: MakeWorld,
) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        version = await run.learner.version()
        await run.learner.publish(v(version, 1), here.weights("1"))
    os.truncate(here.folder / "weights" / "1" / "model.safetensors", 0)
    with pytest.raises(
        StartupError, match=rf"newest weights {v(version, 1)} cannot be used.*1/mod"
    ):
        async with here.engine():
            pass
    here.weights("1")
    async with here.engine() as run:
        assert await run.learner.version() == v(version, 1)


def slowed(here: World) -> tuple[asyncio.Event, asyncio.Event, list[str]]:
    """(a load has begun, it may go on, versions that were loaded)."""
    load, begun, go = here.sampler.scheduler.load_weights, asyncio.Event(), asyncio.Event()
    loaded: list[str] = []

    async def slow(*args: object, **kwargs: object) -> bool:
        loaded.append(str(args[0] if args else kwargs))
        begun.set()
        await go.wait()
        return await load(*args, **kwargs)  # type: ignore[arg-type]

    here.sampler.scheduler.load_weights = slow  # type: ignore[method-assign]
    return begun, go, loaded


async def test_the_same_publish_asked_again_joins_the_one_under_way(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        version = await run.learner.version()
        await run.learner.lease(version)
        begun, go, loaded = slowed(here)
        weights = here.weights("1")
        asks = [asyncio.create_task(run.learner.publish(v(version, 1), weights)) for _ in range(9)]
        await begun.wait()
        # Another version waits for its turn, and comes after it.
        later = asyncio.create_task(run.learner.publish(v(version, 2), here.weights("2")))
        await holds_for(
            0.05,
            lambda: sampler_version(here) == str(version),
            "the later version to wait for its turn",
        )
        assert sampler_version(here) == str(version)
        go.set()
        assert {answer.samplers for answer in await asyncio.gather(*asks)} == {1}
        assert (await later).samplers == 1
        assert len(loaded) == 2
        assert sampler_version(here) == str(v(version, 2))


async def test_publishes_do_not_queue_without_end(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        version = await run.learner.version()
        await run.learner.lease(version)
        begun, go, _ = slowed(here)
        weights = here.weights("1")
        asks = [
            asyncio.create_task(run.learner.publish(v(version, 1 + n), weights)) for n in range(4)
        ]
        await begun.wait()
        await until(lambda: len(run.engine._publisher._publishes) == 4, "four that wait")
        with pytest.raises(ServiceError, match="cannot wait behind") as caught:
            await run.learner.publish(v(version, 9), weights)
        assert may_retry(caught.value)
        go.set()
        await asyncio.gather(*asks)
        assert (await run.learner.publish(v(version, 9), weights)).samplers == 1


async def test_an_engine_that_stops_in_a_publish_pauses_no_sampler(world: MakeWorld) -> None:
    """The version was not recorded: the next life has the old one, and the publish comes again."""
    here = await world(run=RUN)
    async with here.engine("engine.drain_s=0") as run:
        version = await run.learner.version()
        await run.learner.lease(version)
        begun, go, _ = slowed(here)
        asked = asyncio.create_task(run.learner.publish(v(version, 1), here.weights("1")))
        await begun.wait()
        await run.drain()
        with pytest.raises((ServiceError, TransportError)):
            await asked
        go.set()
    assert not here.sampler.scheduler.paused
    async with here.engine() as run:
        assert await run.learner.version() == version
        assert sampler_version(here) == str(version)
        await run.learner.publish(v(version, 1), here.weights("1"))
        assert sampler_version(here) == str(v(version, 1))


async def test_a_publish_that_comes_with_the_engine_s_end_is_answered(world: MakeWorld) -> None:
    """It had not begun: the learner hears of the end, and publishes again."""
    here = await world(run=RUN)
    async with here.engine() as run:
        publisher = run.engine._publisher
        ended, _ = await asyncio.gather(
            publisher.publish(v(publisher.version, 1), here.weights("1"), None),
            publisher.stop(),
            return_exceptions=True,
        )
        assert isinstance(ended, ServiceError)
        assert ended.reason == reasons.ERROR_REASON_DRAINING
        assert may_retry(ended)


async def test_a_new_lineage_with_its_parent(world: MakeWorld) -> None:
    """What was sampled before is as old as the way over the fork, and the old lineage is over."""
    here = await world(run={**RUN, "groups_per_step": 2})
    async with here.engine() as run:
        old = await run.learner.version()
        first = await run.learner.lease(old, count=2)
        await run.learner.publish(v(old, 1), here.weights("1"))
        second = await run.learner.lease(v(old, 1), count=2, after=first[-1].info.sequence_number)
        # The learner is back at step 0: nothing of its own steps is in the new lineage yet.
        new = fresh(0)
        await run.learner.publish(new, here.weights("new"), parent=v(old, 0))
        assert sampler_version(here) == str(new)
        offered = await run.learner.lease(new, count=99, wait=0.3)
        numbers = {g.info.sequence_number for g in offered}
        assert numbers >= {g.info.sequence_number for g in first}
        assert not numbers & {g.info.sequence_number for g in second}  # one step off policy
        assert (await run.learner.status()).dropped_groups == 2
        for parent in (None, new):
            with pytest.raises(ServiceError, match=f"lineage {old.lineage} was left for"):
                await run.learner.publish(v(old, 2), here.weights("2"), parent)
        await run.learner.publish(v(new, 1), here.weights("new1"))
    async with here.engine() as run:
        assert await run.learner.version() == v(new, 1)
        answer = await call(run.learner.policy.GetPolicy, policy_pb2.GetPolicyRequest(), timeout=9)
        assert [(f.lineage, f.parent.lineage, f.parent.step) for f in answer.forks] == [
            (new.lineage, old.lineage, 0)
        ]


async def test_a_learner_that_begins_anew_begins_at_step_0(world: MakeWorld) -> None:
    """As long as nothing was acknowledged; after that its groups are gone."""
    here = await world(run=RUN)
    async with here.engine() as run:
        version = await run.learner.version()
        own = fresh(0)
        await run.learner.publish(own, here.weights("own"))
        (group,) = await run.learner.lease(own)
        assert set(group.members[0].weight_versions) <= {version, own}
        await run.learner.acknowledge(group.info.sequence_number)
        with pytest.raises(ServiceError, match="are acknowledged and gone") as caught:
            await run.learner.publish(fresh(0), here.weights("again"))
        assert caught.value.reason == reasons.ERROR_REASON_WRONG_LINEAGE
        assert "run.folder" in caught.value.fix


async def test_a_sampler_that_refuses_weights_gets_the_old_ones_back(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        version = await run.learner.version()
        (first,) = await run.learner.lease(version)
        control = here.sampler.scheduler.load_weights

        async def refuse(*_args: object, **_kwargs: object) -> bool:
            here.sampler.scheduler.load_weights = control  # type: ignore[method-assign]
            return False

        here.sampler.scheduler.load_weights = refuse  # type: ignore[method-assign]
        with pytest.raises(ServiceError, match="cache was not flushed") as caught:
            await run.learner.publish(v(version, 1), here.weights("1"))
        assert caught.value.reason == reasons.ERROR_REASON_PUBLISH_FAILED
        assert await run.learner.version() == version
        assert not here.sampler.scheduler.paused
        assert str(v(version, 1)) not in run.engine._pool.known, "nothing written under it counts"
        # Once it is back up the same publish can be tried again, and is really done.
        await until(lambda: run.engine._pool.servers[0].up.is_set(), "the sampler", 5)
        assert sampler_version(here) == str(version)
        answer = await run.learner.publish(v(version, 1), here.weights("1"))
        assert answer.samplers == 1
        assert sampler_version(here) == str(v(version, 1))
        (second,) = await run.learner.lease(v(version, 1), after=first.info.sequence_number)
        assert second.members[0].weight_versions == (v(version, 1),)


async def test_an_update_that_changed_nothing_is_seen(world: MakeWorld) -> None:
    here = await world(run=RUN, faults=Faults(stale_weights=True))
    here.sampler.scheduler.rename_weights("default")
    with pytest.raises(StartupError, match=r"did not take the weights.*serves 'default' after"):
        async with here.engine():
            pass


async def test_with_no_sampler_left_a_publish_waits_for_one(world: MakeWorld) -> None:
    """It is done with the first sampler that is back, and no request came before."""
    here = await world(run=RUN)
    port = urlsplit(here.sampler.url).port or 0
    script = here.sampler._script
    async with here.engine() as run:
        version = await run.learner.version()
        await run.learner.lease(version)
        await here.sampler.__aexit__()
        publish = asyncio.create_task(run.learner.publish(v(version, 1), here.weights("1")))
        await holds_for(0.5, lambda: not publish.done(), "the publish to wait")
        assert not publish.done()
        assert await run.learner.version() == version
        async with ScriptedSampler(script=script, port=port) as back:
            answer = await publish
            assert answer.samplers == 1
            assert back.scheduler.weight_version == str(v(version, 1))
            assert await run.learner.version() == v(version, 1)


async def test_a_sampler_that_comes_back_and_refuses_ends_a_publish_that_waits(
    world: MakeWorld,
) -> None:
    here = await world(run=RUN)
    port = urlsplit(here.sampler.url).port or 0
    script = here.sampler._script
    async with here.engine() as run:
        version = await run.learner.version()
        await run.learner.lease(version)
        await here.sampler.__aexit__()
        publish = asyncio.create_task(run.learner.publish(v(version, 1), here.weights("1")))
        async with ScriptedSampler(script=script, port=port, faults=Faults(fail_updates=1)):
            with pytest.raises(ServiceError, match="scripted") as caught:
                await publish
        assert caught.value.reason == reasons.ERROR_REASON_PUBLISH_FAILED
        assert await run.learner.version() == version


async def test_a_learner_that_dies_in_a_publish_leaves_it_whole(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        version = await run.learner.version()
        await run.learner.lease(version)
        load, begun = here.sampler.scheduler.load_weights, asyncio.Event()

        async def slow(*args: object, **kwargs: object) -> bool:
            begun.set()
            await asyncio.sleep(0.2)
            return await load(*args, **kwargs)  # type: ignore[arg-type]

        here.sampler.scheduler.load_weights = slow  # type: ignore[method-assign]
        dying = asyncio.create_task(run.learner.publish(v(version, 1), here.weights("1")))
        await begun.wait()
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
        again = await run.learner.publish(v(version, 1), here.weights("1"))
        assert again.samplers == 1  # what the first one, which went on, has done
        assert await run.learner.version() == v(version, 1)
        assert sampler_version(here) == str(v(version, 1))
        assert not here.sampler.scheduler.paused
        assert (await run.learner.status()).version.step == 1


async def test_an_engine_that_starts_puts_the_samplers_in_order(world: MakeWorld) -> None:
    """What an earlier life left is ended: requests aborted, a pause over."""
    import aiohttp

    here = await world(run=RUN, timing=Timing(tokens_per_second=20))
    body = {
        "rid": "left-over",
        "input_ids": [1, 2, 3],
        "stream": True,
        "sampling_params": {"max_new_tokens": 2000},
    }
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{here.sampler.url}/generate", json=body) as left,
    ):
        await left.content.readany()
        await session.post(f"{here.sampler.url}/pause_generation", json={"mode": "in_place"})
        assert here.sampler.scheduler.paused
        async with here.engine("sampler.timeout_s=30") as run:
            assert not here.sampler.scheduler.paused
            assert '"type":"abort"' in await left.text()
            assert sampler_version(here) == str(await run.learner.version())


async def first_state(learner: Learner) -> str:
    """What the engine says as soon as it listens."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return str((await learner.status()).state)
            except TransportError:
                await asyncio.sleep(0.02)


async def test_before_the_samplers_are_in_order_the_engine_says_wait(world: MakeWorld) -> None:
    """A learner that comes early is told to ask again, not that something is broken."""
    here = await world(run=RUN)
    load, go = here.sampler.scheduler.load_weights, asyncio.Event()

    async def slow(*args: object, **kwargs: object) -> bool:
        await go.wait()
        return await load(*args, **kwargs)  # type: ignore[arg-type]

    here.sampler.scheduler.load_weights = slow  # type: ignore[method-assign]
    entering = here.engine()
    starting = asyncio.create_task(entering.__aenter__())
    try:
        async with open_channel(here.tables["run"]["engine"]) as channel:
            early = Learner(channel)
            assert await first_state(early) == "starting"
            for ask in (early.version(), early.publish(fresh(1), here.weights("1"))):
                with pytest.raises(ServiceError) as caught:
                    await ask
                assert caught.value.code is grpc.StatusCode.UNAVAILABLE
                assert may_retry(caught.value)
    finally:
        go.set()
        await starting
        await entering.__aexit__(None, None, None)


async def test_a_sampler_that_refuses_a_publish_is_set_aside_and_comes_back(
    world: MakeWorld,
) -> None:
    """The others and the learner do not wait for it."""
    here = await world(run=RUN)
    async with ScriptedSampler(script=here.sampler._script, faults=Faults()) as other:
        here.tables["sampler"]["endpoints"].append(other.url)
        async with here.engine() as run:
            version = await run.learner.version()
            await run.learner.lease(version)
            load = other.scheduler.load_weights

            async def refuse(*_args: object, **_kwargs: object) -> bool:
                other.scheduler.load_weights = load  # type: ignore[method-assign]
                return False

            other.scheduler.load_weights = refuse  # type: ignore[method-assign]
            answer = await run.learner.publish(v(version, 1), here.weights("1"))
            assert answer.samplers == 1
            told = run.engine._pool.statistics()
            assert (told[here.sampler.url]["up"], told[other.url]["up"]) == (True, False)
            assert "cache was not flushed" in told[other.url]["why"]
            await until(lambda: all(s.up.is_set() for s in run.engine._pool.servers), "both")
            assert other.scheduler.weight_version == str(v(version, 1))
            assert not other.scheduler.paused


async def test_a_sampler_that_hangs_holds_up_neither_the_start_nor_a_publish(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.core.sampler.control.GRACE_SECONDS", 0.5)
    here = await world(run=RUN)
    async with ScriptedSampler(script=here.sampler._script) as other:
        here.tables["sampler"]["endpoints"].append(other.url)
        load, go = other.scheduler.load_weights, asyncio.Event()

        async def hang(*args: object, **kwargs: object) -> bool:
            await go.wait()
            return await load(*args, **kwargs)  # type: ignore[arg-type]

        other.scheduler.load_weights = hang  # type: ignore[method-assign]
        async with here.engine() as run:
            version = await run.learner.version()
            await run.learner.lease(version)
            go.set()
            await until(lambda: run.engine._pool.statistics()[other.url]["up"], "the other")
            assert other.scheduler.weight_version == str(version)
            go.clear()
            answer = await run.learner.publish(v(version, 1), here.weights("1"))
            assert answer.samplers == 1
            assert run.engine._pool.statistics()[here.sampler.url]["up"]
            go.set()
            await until(lambda: other.scheduler.weight_version == str(v(version, 1)), "the newest")
            await until(lambda: not other.scheduler.paused, "the end of its pause")


async def test_a_sampler_that_comes_back_amid_a_publish_comes_back_with_the_newest(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It loads the version before, which is no longer the newest when that is done."""
    monkeypatch.setattr("engine.core.sampler.control.GRACE_SECONDS", 0.1)
    here = await world(run=RUN)
    async with ScriptedSampler(script=here.sampler._script) as other:
        here.tables["sampler"]["endpoints"].append(other.url)
        load, go, begun = other.scheduler.load_weights, asyncio.Event(), 0

        async def slow(*args: object, **kwargs: object) -> bool:
            nonlocal begun
            begun += 1
            await go.wait()
            return await load(*args, **kwargs)  # type: ignore[arg-type]

        other.scheduler.load_weights = slow  # type: ignore[method-assign]
        async with here.engine() as run:
            version = await run.learner.version()
            await run.learner.lease(version)
            await until(lambda: begun == 2, "its second load, after it was set aside")
            await run.learner.publish(v(version, 1), here.weights("1"))
            go.set()
            await until(lambda: run.engine._pool.statistics()[other.url]["up"], "the other")
            assert other.scheduler.weight_version == str(v(version, 1))
