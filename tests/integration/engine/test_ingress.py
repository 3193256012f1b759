"""Outside agents over real gRPC: one call's life, retries, restarts, limits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from bench.scripted import Break, Faults, Timing
from engine.core.rollout.outside_attempt import OutsideAttempt
from engine.core.text.codec import HuggingFaceCodec
from engine.core.trajectory.events import AnyEvent, Streamed
from engine.core.trajectory.state import fold
from engine.serving.admission.train import TrainLane
from engine.serving.journal.journal import Journal
from tests.integration.engine.conftest import MakeWorld
from tests.integration.engine.outside_runs import REPORTS, leased, served
from tests.support.agents import END
from tests.support.dialogue import by_turn
from tests.support.waiting import holds_for, until
from toolwright import wire
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.common.v1 import trajectory_pb2
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.process.backoff import Backoff
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.types import Author, SamplingParams, StopReason

pytestmark = pytest.mark.quick


async def test_a_conversation_with_a_tool_becomes_one_sequence(world: MakeWorld) -> None:
    here = await world()
    async with served(here) as (run, client):
        taken = await client.take()
        assert taken.task.id
        assert not taken.reward_key
        read = pb.ReadCall(id="call_7", name="python", arguments='{"code": "1+1"}')
        talk = await client.talk(taken.key, ["q"], read)
        second = await client.ask(taken.key, [*talk, "2"])
        result = pb.ReadResult(id="call_7", text="2")
        attached = await second.prompt("</result>", [result])
        assert (attached.node, attached.matched, attached.turn_ended) == (0, 2, False)
        (finished,) = await second.completions()
        assert finished.prompt_tokens == attached.tokens + len(here.codec.encode("</result>"))
        await second.reply()
        assert await client.end(taken.key, answer="2") == 2
        trajectory = await leased(run)
    (sequence,) = trajectory.sequences
    authors = [segment.author for segment in sequence.segments]
    assert authors == [Author.PROMPT, Author.MODEL] * 2
    requests = [list(one.input_ids) for one in here.sampler.requests]
    assert all(list(sequence.token_ids[: len(one)]) == one for one in requests)
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert trajectory.metadata["answer"] == "2"
    (call,) = trajectory.calls
    assert (call.tool, call.turn, call.outcome.observation) == ("python", 0, "2")


async def test_a_result_answers_the_call_of_its_own_sample(
    world: MakeWorld, codec: HuggingFaceCodec
) -> None:
    here = await world(script=by_turn(codec, ["one<|im_end|>", "two<|im_end|>"]))
    async with served(here) as (run, client):
        taken = await client.take()
        read = pb.ReadCall(id="call_7", name="python", arguments="{}")
        await client.talk(taken.key, ["q"], read)
        talk = await client.talk(taken.key, ["q"], read)  # an unmarked retry: another sample
        third = await client.ask(taken.key, [*talk, "2"])
        await third.prompt(results=[pb.ReadResult(id="call_7", text="2")])
        await third.completions()
        await third.reply()
        await client.end(taken.key)
        trajectory = await leased(run)
    assert [(call.turn, call.outcome.observation) for call in trajectory.calls] == [(1, "2")]


async def test_a_kill_between_two_appends_loses_no_call_of_a_reply(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended: list[list[AnyEvent]] = []
    append = Journal.append

    def kept(journal: Journal, name: str, events: Sequence[AnyEvent], blobs: Any) -> None:
        appended.append(list(events))
        append(journal, name, events, blobs)

    monkeypatch.setattr(Journal, "append", kept)
    here = await world()
    async with served(here) as (_run, client):
        taken = await client.take()
        reads = [
            pb.ReadCall(id="call_1", name="python", arguments="{}"),
            pb.ReadCall(arguments="{", invalid_reason="it is not JSON"),
            pb.ReadCall(id="call_3", name="python", arguments="{}"),
        ]
        talk = await client.talk(taken.key, ["q"], *reads)
        second = await client.ask(taken.key, [*talk, "r"])
        await second.prompt(results=[pb.ReadResult(id=f"call_{n}", text="r") for n in (1, 3)])
        await second.completions()
        await second.reply()
        await client.end(taken.key, pb.OUTCOME_FAILED, error="it broke", output="Traceback")
    for kill in range(1, len(appended) + 1):
        state = fold([event for events in appended[:kill] for event in events])
        assert state.forest is not None
        called, answered = len(state.open_calls) + len(state.calls), len(state.calls)
        assert called == (3 if state.forest.accepted else 0)
        assert answered == (0 if not called else 1 if len(state.forest.nodes) == 1 else 3)
        notes = [one.kind for one in state.events]
        assert notes.count("agent_failed") == notes.count("agent_output") == bool(state.ended)


async def test_a_streamed_reply_is_what_the_record_holds(world: MakeWorld) -> None:
    here = await world(timing=Timing(tokens_per_second=50))
    async with served(here) as (run, client):
        taken = await client.take()
        talk = await client.ask(taken.key, ["q"], stream=True, n=2)
        await talk.prompt()
        await talk.completions(2)
        assert talk.deltas
        await talk.reply()
        await client.end(taken.key)
        trajectory = await leased(run)
    one, other = trajectory.sequences
    assert (other.parent, other.fork_offset) == (one.id, len(one.segments[0].token_ids))
    assert [here.codec.decode(s.segments[-1].token_ids) for s in (one, other)] == talk.texts()


async def test_every_choice_of_a_streamed_call_is_logged_while_it_is_written(
    world: MakeWorld, codec: HuggingFaceCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: set[int | None] = set()
    append = Journal.append

    def kept(journal: Journal, name: str, events: Sequence[AnyEvent], blobs: Any) -> None:
        logged.update(event.node for event in events if isinstance(event, Streamed))
        append(journal, name, events, blobs)

    monkeypatch.setattr(Journal, "append", kept)
    long = "one two three " * 40 + "<|im_end|>"
    here = await world(script=by_turn(codec, [long]), timing=Timing(tokens_per_second=20))
    async with served(here) as (_run, client):
        taken = await client.take()
        talk = await client.ask(taken.key, ["q"], stream=True, n=3)
        await talk.prompt()
        await until(lambda: len(logged) == 3, "tokens of each choice in the log")


async def test_a_marked_retry_joins_the_call_or_gets_it_again(world: MakeWorld) -> None:
    here = await world(timing=Timing(first_token_delay=0.2))
    async with served(here) as (run, client):
        taken = await client.take()
        first = await client.ask(taken.key, ["q"])
        await first.prompt()
        await until(lambda: len(here.sampler.requests) == 1, "the request")
        first.stream.cancel()
        for _ in range(2):
            again = await client.ask(taken.key, ["q"], retry=True)
            await again.completions()
            await again.reply()
        assert len(here.sampler.requests) == 1
        unmarked = await client.ask(taken.key, ["q"])
        await unmarked.prompt()
        await unmarked.completions()
        await unmarked.reply()
        assert len(here.sampler.requests) == 2
        await client.end(taken.key)
        trajectory = await leased(run)
    masks = [any(sequence.loss_mask) for sequence in trajectory.sequences]
    assert masks == [False, True]  # the later sample took the place of the first


@pytest.mark.parametrize("matched", [2, 1])
@pytest.mark.parametrize("end", ["", END])
async def test_a_guess_that_fits_is_the_prompt(
    world: MakeWorld, codec: HuggingFaceCodec, end: str, matched: int
) -> None:
    here = await world(script=by_turn(codec, [f"one{end}", f"two{end}"], mark="<2>"))
    tail = codec.encode(f"{END}<2>")
    runs = (trajectory_pb2.AUTHOR_TEMPLATE, 1), (trajectory_pb2.AUTHOR_PROMPT, len(tail) - 1)
    ids = pb.Ids(
        token_ids=wire.pack(tail, "i"),
        token_count=len(tail),
        authors=[pb.AuthorRun(author=author, count=count) for author, count in runs],  # type: ignore[arg-type]
    )
    guess = pb.Guess(matched=matched, prompt=pb.Prompt(tail=ids))
    async with served(here) as (run, client):
        taken = await client.take()
        talk = await client.talk(taken.key, ["q"])
        second = await client.ask(taken.key, [*talk, "2"], guess=guess)
        if matched != 2:
            assert (await second.prompt()).matched == 2
        await second.completions()
        await second.reply()
        assert await client.end(taken.key) == 2
        trajectory = await leased(run)
    (sequence,) = trajectory.sequences
    first = codec.decode(here.sampler.requests[0].input_ids)
    ended = END if matched == 2 or end else ""
    assert codec.decode(sequence.token_ids) == f"{first}one{ended}<2>two{end}"


async def test_a_repeated_request_without_a_reply_gets_no_accepted_call(world: MakeWorld) -> None:
    here = await world(timing=Timing(tokens_per_second=20))
    async with served(here) as (_run, client):
        key = (await client.take()).key
        await client.talk(key, ["q"])
        again = await client.ask(key, ["q"], retry=True, only_open=True)
        assert not (await again.prompt()).HasField("node")
        joined = await client.ask(key, ["q"], retry=True, only_open=True)
        (found,) = await again.completions()
        assert await joined.completions() == [found]
        await again.reply()
        assert await client.end(key) == 2


async def test_equal_requests_that_are_cut_find_a_call_each(world: MakeWorld) -> None:
    here = await world(timing=Timing(tokens_per_second=20))
    async with served(here) as (run, client):
        key = (await client.take()).key
        asks = [await client.ask(key, ["q"]) for _ in range(2)]
        for ask in asks:
            await ask.prompt()
        calls = next(iter(run.engine._agents._live.values()))._calls  # type: ignore[union-attr]
        for ask in asks:
            ask.stream.cancel()
        await until(lambda: not any(call.readers for call in calls.values()), "the cut")
        again = []
        for number in (1, 2):
            again.append(await client.ask(key, ["q"], retry=True, only_open=True))
            await until(lambda n=number: sum(call.readers for call in calls.values()) == n, "it")
        assert [call.readers for call in calls.values()] == [1, 1]
        for ask in again:
            await ask.completions()
            await ask.reply()
        assert await client.end(key) == 2


async def test_a_marked_retry_does_not_pass_its_request(world: MakeWorld) -> None:
    here = await world()
    async with served(here) as (run, client):
        taken = await client.take()
        first = await client.ask(taken.key, ["q"])
        attempt = next(iter(run.engine._agents._live.values()))  # type: ignore[union-attr]
        await until(lambda: bool(attempt._reserved), "the first request")
        again = await client.ask(taken.key, ["q"], retry=True)
        joined = asyncio.create_task(again.completions())
        await holds_for(0.1, lambda: len(attempt._reserved) == 1, "one call")
        await first.prompt()
        await joined
        await again.reply()
        await client.end(taken.key)
        trajectory = await leased(run)
    assert len(trajectory.sequences) == 1
    assert len(here.sampler.requests) == 1


async def test_a_call_without_a_reader_is_dropped(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.core.rollout.outside_attempt.GRACE_S", 0.05)
    here = await world()
    async with served(here) as (run, client):
        taken = await client.take()
        lost = await client.ask(taken.key, ["q"])
        await lost.prompt()
        await lost.completions()
        lost.stream.cancel()
        agents: Any = run.engine._agents
        (attempt,) = agents._live.values()
        await until(lambda: attempt.forest.nodes == (None,), "the drop")
        await client.talk(taken.key, ["other"])
        await client.end(taken.key)
        trajectory = await leased(run)
    assert len(trajectory.sequences) == 1


async def test_a_restart_in_the_middle_of_a_call_loses_nothing(
    world: MakeWorld, codec: HuggingFaceCodec
) -> None:
    replies = ["hello<|im_end|>", "one two three four " * 10 + "<|im_end|>", "end<|im_end|>"]
    here = await world(script=by_turn(codec, replies), timing=Timing(tokens_per_second=40))
    async with served(here) as (run, client):
        taken = await client.take()
        history = await client.talk(taken.key, ["q"])
        broken = await client.ask(taken.key, [*history, "2"], stream=True)
        await broken.prompt("</result>")
        assert (await broken.read()).HasField("delta")
        await run.drain()
        with pytest.raises((ServiceError, TransportError)) as stopped:
            await broken.completions()
        assert "SESSION_CLOSED" not in str(stopped.value)
    async with served(here) as (run, client):
        assert (await client.take()).key == taken.key  # the same request of the same worker
        again = await client.ask(taken.key, [*history, "2"], retry=True)
        await again.completions()
        text = again.texts()[0]
        assert text == replies[1]
        told = (await again.reply())[0]
        third = await client.ask(taken.key, [*told, "and?"])
        await third.prompt("</result>")
        await third.completions()
        await third.reply()
        await client.end(taken.key)
        trajectory = await leased(run)
    (sequence,) = trajectory.sequences
    assert [s.author for s in sequence.segments] == [Author.PROMPT, Author.MODEL] * 3
    for one in here.sampler.requests:
        assert list(sequence.token_ids[: len(one.input_ids)]) == list(one.input_ids)


async def test_a_repeated_take_waits_for_the_attempt_of_an_earlier_life(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = await world()
    async with served(here) as (run, client):
        key = (await client.take()).key
        await run.drain()
    gate, work = asyncio.Event(), TrainLane.run

    async def late(lane: TrainLane) -> None:
        await gate.wait()
        await work(lane)

    monkeypatch.setattr(TrainLane, "run", late)
    async with served(here) as (run, client):
        again = asyncio.create_task(client.take())
        await until(lambda: bool(run.engine._agents), "the agents")
        await holds_for(0.1, lambda: not again.done(), "no answer")
        gate.set()
        assert (await again).key == key
        await client.end(key)
        await leased(run)


async def test_an_ingress_with_another_tokenizer_is_refused(world: MakeWorld) -> None:
    here = await world()
    async with served(here) as (_run, client):
        taken = await client.take()
        for own in ("", here.codec.hash):
            assert await client.use_of(taken.key, own) == pb.KEY_USE_CALLS
        with pytest.raises(ServiceError) as refused:
            await client.use_of(taken.key, "0123456789abcdef")
        await client.end(taken.key)
    assert refused.value.reason == reasons.ERROR_REASON_OTHER_TOKENIZER
    assert f"{here.codec.hash[:12]} in the engine" in refused.value.message
    assert "0123456789ab in the ingress" in refused.value.message


async def test_an_unexpected_error_is_internal_and_logged(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("no such thing")

    here = await world()
    async with served(here) as (_run, client):
        taken = await client.take()
        with monkeypatch.context() as patched, capture_logs() as logs:
            patched.setattr(OutsideAttempt, "match", broken)
            with pytest.raises(ServiceError) as failed:
                await client.talk(taken.key, ["q"])
        await client.talk(taken.key, ["q"])
        await client.end(taken.key)
    assert failed.value.reason == reasons.ERROR_REASON_INTERNAL
    assert "KeyError" in failed.value.message
    assert [one["event"] for one in logs if one["log_level"] == "error"] == ["unexpected"]


async def test_refusals_name_their_reason(world: MakeWorld) -> None:
    here = await world()
    limits = {"limits": {"model": 300}}
    async with served(here, task={"agent": {}, **limits}) as (_run, client):
        taken = await client.take()

        async def reason(messages: list[str], text: str | None = None, **fields: Any) -> int:
            with pytest.raises(ServiceError) as refused:
                talk = await client.ask(fields.pop("key", taken.key), messages, **fields)
                await talk.prompt(text)
                await talk.completions()
            return refused.value.reason

        assert await reason(["q"], "a b " * 300) == reasons.ERROR_REASON_CONTEXT_FULL
        assert await reason(["q"], key="tw-x.y") == reasons.ERROR_REASON_SESSION_NOT_FOUND
        for token, author in ((-1, 1), (1 << 30, 1), (0, 2), (0, 99)):
            talk = await client.ask(taken.key, ["q"])
            await talk.read()
            runs = [pb.AuthorRun(author=author, count=1)]  # type: ignore[arg-type]
            fresh = pb.Ids(token_ids=wire.pack([token], "i"), token_count=1, authors=runs)
            await talk.stream.write(pb.GenerateRequest(prompt=pb.Prompt(fresh=fresh)))
            with pytest.raises(ServiceError) as refused:
                await talk.read()
            assert refused.value.reason == reasons.ERROR_REASON_INVALID_REQUEST
        assert await reason(["q"], n=17) == reasons.ERROR_REASON_INVALID_REQUEST
        assert await reason(["q"], request_digest=b"short") == reasons.ERROR_REASON_INVALID_REQUEST
        await client.talk(taken.key, ["q"])
        held = [await client.ask(taken.key, ["q"]) for _ in range(16)]
        await asyncio.gather(*(one.read() for one in held))
        assert await reason(["q"]) == reasons.ERROR_REASON_TOO_MANY_CALLS
        await client.end(taken.key)


async def test_a_key_is_checked_without_its_trajectory(world: MakeWorld) -> None:
    here = await world()
    async with served(here, task=REPORTS) as (_run, client):
        taken = await client.take()
        for _ in range(2):
            assert await client.use_of(taken.key) == pb.KEY_USE_CALLS
            assert await client.use_of(taken.reward_key) == pb.KEY_USE_REPORT
            await client.end(taken.key)
        with pytest.raises(ServiceError) as refused:
            await client.use_of(f"{taken.key}x")
    assert refused.value.reason == reasons.ERROR_REASON_SESSION_NOT_FOUND


async def test_a_prompt_by_prefix_goes_on_from_a_whole_completion(world: MakeWorld) -> None:
    here = await world()
    async with served(here) as (run, client):
        taken = await client.take()
        said = ""
        for text in ("one two", " three", " four"):
            said += text
            talk = await client.ask(taken.key, [said])
            attached = await talk.prompt(said, by_prefix=True)
            assert not attached.HasField("node")
            await talk.completions()
            said += talk.texts()[0]
            await talk.reply()
        other = await client.ask(taken.key, ["one two five"])
        await other.prompt("one two five", by_prefix=True)
        await other.completions()
        await other.reply()
        await client.end(taken.key)
        trajectory = await leased(run)
    first, second = trajectory.sequences
    assert [s.author for s in first.segments] == [Author.PROMPT, Author.MODEL] * 3
    assert here.codec.decode(first.token_ids) == said
    assert second.parent is None


@pytest.mark.parametrize("author", [0, trajectory_pb2.AUTHOR_MODEL, 99])
async def test_a_prompt_by_another_author_is_refused(world: MakeWorld, author: int) -> None:
    here = await world()
    async with served(here) as (_run, client):
        talk = await client.ask((await client.take()).key, ["q"])
        await talk.prompt(author=author)
        with pytest.raises(ServiceError, match="an author of a prompt is"):
            await talk.completions()


async def test_a_constrained_or_aside_completion_is_recorded_and_not_trained(
    world: MakeWorld,
) -> None:
    here = await world()
    async with served(here, task={"agent": {"sampling": "request"}}) as (run, client):
        taken = await client.take()
        limited = pb.Constraint(regex="x+")
        talk = await client.talk(taken.key, ["a"], constraint=limited, stops=["1+"])
        assert talk[-1].endswith("1+")
        await client.talk(taken.key, ["b"], aside=True)
        hot = SamplingParams(temperature=0.25, seed=7, max_new_tokens=3)
        await client.talk(taken.key, ["c"], sampling=wire.sampling_to_proto(hot))
        await client.end(taken.key)
        trajectory = await leased(run)
    assert [any(one.loss_mask) for one in trajectory.sequences] == [False, False, True]
    first, _, third = (one.body["sampling_params"] for one in here.sampler.requests)
    assert first["regex"] == "x+"
    assert [third[key] for key in ("temperature", "sampling_seed", "max_new_tokens")] == [
        0.25, 7, 3
    ]  # fmt: skip


@pytest.mark.parametrize("grammar", [None, "x+"])
async def test_an_outage_delays_a_call_and_is_no_error(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch, grammar: str | None
) -> None:
    monkeypatch.setattr("engine.core.rollout.outside_call.BACKOFF", Backoff(0.01, 0.02))
    broken = {number: Break(chunks=1) for number in range(3)}
    here = await world(faults=Faults(breaks=broken), sampler={"patience_s": 0.01})
    async with served(here) as (run, client):
        taken = await client.take()
        limited = pb.Constraint(regex=grammar) if grammar else None
        talk = await client.ask(taken.key, ["q"], stream=True, constraint=limited)
        await talk.prompt()
        await talk.completions()
        assert talk.texts() == ["<python> 1+1</python>"]
        await talk.reply()
        await client.end(taken.key)
        trajectory = await leased(run)
    (sequence,) = trajectory.sequences
    first, *_, last = (one.input_ids for one in here.sampler.requests)
    assert (first == last) == (grammar is not None)  # it begins anew, or goes on
    assert tuple(sequence.token_ids[: len(last)]) == last


async def test_a_reply_waits_for_the_disk(world: MakeWorld) -> None:
    here = await world()
    async with served(here) as (run, client):
        taken = await client.take()
        agents: Any = run.engine._agents
        written, durable = asyncio.Event(), agents.durable
        agents.durable = written.wait
        talk = asyncio.create_task(client.talk(taken.key, ["q"]))
        (attempt,) = agents._live.values()
        await until(lambda: len(attempt.forest.accepted) == 1, "the reply in the log")
        await holds_for(0.1, lambda: not talk.done(), "no response")
        written.set()
        await talk
        agents.durable = durable
        await client.end(taken.key)


async def test_calls_that_wait_for_their_prompts_count_as_completions(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.core.rollout.outside_attempt.MOST_CALLS", 5)
    here = await world()
    async with served(here) as (_run, client):
        taken = await client.take()
        first = await client.ask(taken.key, ["a"], n=3)
        await first.read()
        second = await client.ask(taken.key, ["b"], n=3)
        with pytest.raises(ServiceError) as refused:
            await second.read()
        assert refused.value.reason == reasons.ERROR_REASON_TOO_MANY_CALLS
        first.stream.cancel()
        await client.talk(taken.key, ["c"])
        full = await client.ask(taken.key, ["d"], n=5)
        with pytest.raises(ServiceError) as refused:
            await full.read()
        assert refused.value.reason == reasons.ERROR_REASON_TRAJECTORY_FULL
        await client.end(taken.key)


async def test_a_record_fits_a_message(world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.core.rollout.outside_attempt.MOST_RECORD", 100_000)
    here = await world()
    async with served(here, task={"agent": {}, "limits": {"model": 2000, "action": 10}}) as (
        run,
        client,
    ):
        taken = await client.take()
        with pytest.raises(ServiceError) as refused:
            for number in range(16):
                talk = await client.ask(taken.key, [f"q{number}"], n=4)
                await talk.prompt("a " * 500)
                await talk.completions(4)
                await talk.reply()
        assert refused.value.reason == reasons.ERROR_REASON_TRAJECTORY_FULL
        assert await client.end(taken.key) == 4 * number > 8
        trajectory = await leased(run)
    assert 50_000 < wire.trajectory_to_proto(trajectory).ByteSize() < 100_000
