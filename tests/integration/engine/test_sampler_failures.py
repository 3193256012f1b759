"""A sampler that breaks, dies, comes back, and changes its weights under a stream."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest

from bench.scripted import Break, BreakHow, Faults, ScriptedSampler, ScriptRequest, Timing
from bench.scripted.script import default_logprob
from engine.core.sampler.wire.client import Load, SamplerClient, ServerUnreachable
from engine.errors import StartupError
from tests.integration.engine.conftest import MakeWorld, World
from tests.support.dialogue import ANSWER, CALL, by_turn
from tests.support.long_actions import LONG, actions
from tests.support.recipes import ONE
from tests.support.tools import held
from tests.support.waiting import holds_for, until
from toolwright.types import Author, FinishKind, Status, StopReason, WeightVersion

pytestmark = pytest.mark.quick


async def test_nothing_is_admitted_before_the_samplers_answer_about_their_caches(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = asyncio.Event()
    load = SamplerClient.load

    async def late(self: SamplerClient) -> Load:
        if not answers.is_set():
            raise ServerUnreachable("not yet")
        return await load(self)

    monkeypatch.setattr(SamplerClient, "load", late)
    here = await world(run=ONE, engine={"max_concurrent": "auto"})
    async with here.engine() as run:
        await holds_for(0.5, lambda: not here.sampler.requests, "no request")
        answers.set()
        await run.learner.lease(run.version)


async def test_a_broken_stream_goes_on_from_the_tokens_that_came(world: MakeWorld) -> None:
    """Breaks of every kind, in trajectories at the same time; none of them shows in the tokens."""
    hows = [BreakHow.CUT, BreakHow.DONE, BreakHow.STALL]
    here = await world(
        faults=Faults(
            breaks={n: Break(chunks=4, how=how) for n, how in enumerate(hows)},
            refuse=frozenset({len(hows)}),
        ),
        run={**ONE, "groups_per_step": len(hows) + 1},
        sampler={"timeout_s": 1.0, "patience_s": 30.0},
    )
    here.sampler._script = by_turn(here.codec, [LONG])
    whole = here.codec.encode(LONG)
    async with here.engine() as run:
        groups = await run.learner.lease(run.version, count=len(hows) + 1)
    for group in groups:
        (trajectory,) = group.members
        assert actions(trajectory) == whole
        (action,) = [s for s in trajectory.sequences[0].segments if s.author is Author.MODEL]
        assert action.logprobs == pytest.approx(
            [default_logprob(token, place) for place, token in enumerate(whole)]
        )
        assert (trajectory.status, trajectory.attempt) == (Status.COMPLETED, 0)

    by_key: dict[object, list[tuple[tuple[int, ...], int]]] = {}
    for seen in here.sampler.requests:
        room = seen.body["sampling_params"]["max_new_tokens"]  # type: ignore[index]
        by_key.setdefault(seen.body["routing_key"], []).append((seen.input_ids, room))
    assert len(by_key) == len(hows) + 1
    continued = 0
    for asked in by_key.values():
        assert len(asked) >= 2
        prompt, room = asked[0]
        for ids, reduced in asked[1:]:
            got = len(ids) - len(prompt)
            assert ids == (*prompt, *whole[:got])
            assert reduced == room - got
            continued += got > 0
    assert continued >= len(hows)


@pytest.mark.parametrize(
    ("garbage", "why"), [(False, "aborts again and again"), (True, "Expected `float` <= ")]
)
async def test_aborts_or_lies_end_the_attempt(world: MakeWorld, garbage: bool, why: str) -> None:
    """It is asked for a bounded time; the trajectory is masked, the rest goes on."""

    def script(request: ScriptRequest) -> list[Any]:
        if not request.conversation.startswith("g0000000-0"):
            return list(good(request))
        if garbage:
            return [(65, 7.0)]
        raise RuntimeError("scripted")

    here = await world(
        script=script,
        run={**ONE, "group_size": 2},
        sampler={"patience_s": 0.5},
        engine={"patience_s": 0.0},
    )
    good = by_turn(here.codec, [CALL, ANSWER])
    lost, living = (await here.group()).members
    assert (lost.status, lost.stop_reason) == (Status.ERRORED, StopReason.SAMPLER_ERROR)
    assert (lost.masked, lost.attempt, lost.reward, lost.sequences) == (True, 2, 0.0, ())
    assert why in lost.events[0].data["error"]
    assert living.stop_reason is StopReason.ANSWERED
    tries = [s for s in here.sampler.requests if "g0000000-0" in str(s.body["routing_key"])]
    assert 6 <= len(tries) <= 30  # three attempts of half a second, with growing pauses


def streaming(here: World) -> bool:
    """A reply is well under way, and has well to go."""
    return any(20 <= len(g.tokens) <= 60 for g in here.sampler.scheduler._generations())


class Restarting:
    """A sampler that dies and comes back on its port, with the weights that it was started with.

    `seen` are the weights under which each of its lives got its requests.
    """

    def __init__(self, here: World, timing: Timing | None = None) -> None:
        self._here = here
        self._timing = timing
        self._stack = AsyncExitStack()
        self.port = urlsplit(here.sampler.url).port or 0
        self.seen: list[str] = []
        self.sampler = here.sampler

    async def restart(self) -> None:
        await self._stack.aclose()
        await self.sampler.__aexit__()
        reply = self._here.sampler._script

        def script(request: ScriptRequest) -> object:
            self.seen.append(self.sampler.scheduler.weight_version)
            return reply(request)

        self.sampler = ScriptedSampler(
            script=script,  # type: ignore[arg-type]
            timing=self._timing,
            port=self.port,
            weight_version="default",
        )
        await self._stack.enter_async_context(self.sampler)

    async def close(self) -> None:
        await self._stack.aclose()


async def test_a_sampler_that_comes_back_has_the_newest_weights_before_any_request(
    world: MakeWorld,
) -> None:
    """It dies in the middle of a stream; the stream goes on where it was."""
    here = await world(
        timing=Timing(tokens_per_second=100),
        run={**ONE, "steps": 3, "max_staleness": 2, "correction": "decoupled"},
        engine={"max_concurrent": 1},
    )
    here.sampler._script = by_turn(here.codec, [LONG])
    sampler = Restarting(here)
    async with here.engine() as run:
        newest = run.at(1)
        await run.learner.publish(newest, here.weights("1"))
        await until(lambda: streaming(here), "a stream")
        await sampler.restart()
        (group,) = await run.learner.lease(newest)
        (trajectory,) = group.members
    await sampler.close()
    assert sampler.seen
    assert set(sampler.seen) == {str(newest)}
    assert actions(trajectory) == here.codec.encode(LONG)
    assert trajectory.attempt == 0


async def test_a_sampler_that_was_restarted_unseen_adds_no_token(world: MakeWorld) -> None:
    """It comes back between two turns, answers at once, and has other weights: not ours."""
    pause = asyncio.Event()
    here = await world(tools=held(pause), run=ONE)
    sampler = Restarting(here)
    async with here.engine() as run:
        await here.tools.called.wait()
        await until(lambda: here.sampler.scheduler.running == 0, "the end of the stream")
        await sampler.restart()
        pause.set()
        (group,) = await run.learner.lease(run.version)
        (trajectory,) = group.members
    await sampler.close()
    assert sampler.seen[0] == "default"
    assert sampler.seen[-1] == str(run.version)
    assert trajectory.weight_versions == (run.version,)
    assert here.texts(trajectory)[1:] == [
        ("model", CALL),
        ("tool", "<result> 2</result>"),
        ("model", ANSWER),
    ]
    assert trajectory.attempt == 0


@pytest.mark.parametrize("mode", ["retract", "in_place", "abort"])
async def test_a_publish_under_a_stream_splits_the_segment(world: MakeWorld, mode: str) -> None:
    here = await world(
        timing=Timing(tokens_per_second=200),
        run={**ONE, "steps": 2, "max_staleness": 1, "correction": "decoupled"},
        sampler={"pause": mode},
        engine={"max_concurrent": 1},
    )
    here.sampler._script = by_turn(here.codec, [LONG])
    whole = here.codec.encode(LONG)
    async with here.engine() as run:
        old = await run.learner.version()
        new = WeightVersion(lineage=old.lineage, step=1)
        await until(lambda: streaming(here), "a stream")
        answer = await run.learner.publish(new, here.weights("1"))
        assert answer.samplers == 1
        groups = await run.learner.lease(new, count=2)
    (trajectory,) = [t for g in groups for t in g.members if len(t.weight_versions) == 2]
    first, second = [s for s in trajectory.sequences[0].segments if s.author is Author.MODEL]
    assert (*first.token_ids, *second.token_ids) == tuple(whole)
    assert (first.weight_version, second.weight_version) == (old, new)
    assert first.finish is not None
    assert second.finish is not None
    assert (first.finish.kind, second.finish.kind) == (FinishKind.CONTINUED, FinishKind.STOP)
    assert first.turn == second.turn == 0
    assert trajectory.weight_versions == (old, new)
    assert trajectory.sequences[0].action_spans[0][0] == 0
    assert len(trajectory.sequences[0].action_spans) == 1
    asked = [s for s in here.sampler.requests if trajectory.id in str(s.body["routing_key"])]
    assert len(asked) == (2 if mode == "abort" else 1)
    if mode == "abort":
        prompt = len(asked[0].input_ids)
        assert list(asked[1].input_ids[prompt:]) == list(first.token_ids)


async def test_a_request_that_every_sampler_refuses_ends_the_engine(world: MakeWorld) -> None:
    """The recipe asks for what the server does not have: one sentence, no endless retries."""
    here = await world(run=ONE, sampler={"repetition_penalty": 3.0}, engine={"max_bad_rows": 2})
    with pytest.raises(BaseExceptionGroup) as caught:
        async with here.engine() as run:
            async with asyncio.timeout(10):
                await run.task
    assert caught.group_contains(StartupError, match="3 rows of the task source.*penalty")
