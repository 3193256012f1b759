"""One trajectory after the other, through real HTTP, gRPC and SQLite."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Sequence

import pytest

from bench.scripted import ScriptRequest, Timing
from bench.scripted.script import default_logprob
from engine.core.text.codec import HuggingFaceCodec
from tests.integration.engine.conftest import MakeWorld, World
from tests.support.dialogue import ANSWER, CALL
from tests.support.recipes import ONE
from tests.support.tools import LONG_STOP, ToolDouble, add_up, held, text
from tests.support.waiting import until
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import (
    Author,
    FinishKind,
    RewardPart,
    SamplingParams,
    Status,
    StopReason,
    ToolErrorKind,
    Trajectory,
)

pytestmark = pytest.mark.quick


def requests_of(world: World, trajectory: str) -> list[tuple[int, ...]]:
    return [
        seen.input_ids
        for seen in world.sampler.requests
        if str(seen.body["routing_key"]).startswith(f"{trajectory}/")
    ]


@pytest.mark.parametrize("incremental", [True, False], ids=["delta", "cumulative"])
async def test_a_trajectory_with_a_tool_call(world: MakeWorld, incremental: bool) -> None:
    here = await world(incremental=incremental, run=ONE, sampler={"temperature": 0.7})
    async with here.engine() as run:
        (group,) = await run.learner.lease(run.version)
        (trajectory,) = group.members
        await until(lambda: not here.tools.live, "the session's end")

    assert here.texts(trajectory) == [
        ("prompt", "<|im_start|>user\nwhat is 0+1?<|im_end|>\n<|im_start|>assistant\n"),
        ("model", CALL),
        ("tool", "<result> 2</result>"),
        ("model", ANSWER),
    ]
    assert (trajectory.status, trajectory.stop_reason) == (Status.COMPLETED, StopReason.ANSWERED)
    assert (trajectory.reward, trajectory.masked, trajectory.attempt) == (1.0, False, 0)
    assert trajectory.reward_parts == (RewardPart(name="correct", value=1.0),)
    assert trajectory.metadata["final_text"] == ANSWER.removesuffix("<|im_end|>")
    assert trajectory.metadata["answer"] == "2"
    assert trajectory.tokenizer_hash == here.codec.hash
    assert trajectory.task.metadata == {"number": 0}

    (sequence,) = trajectory.sequences
    for segment in sequence.segments:
        if segment.author is Author.MODEL:
            assert segment.trainable
            assert segment.weight_version == run.version
            assert segment.sampling == SamplingParams(
                temperature=0.7, top_p=1.0, top_k=-1, min_p=0.0, repetition_penalty=1.0
            )
            assert segment.finish is not None
            assert segment.finish.kind is FinishKind.STOP
            assert segment.finish.matched_token == segment.token_ids[-1]
            assert segment.logprobs == pytest.approx(
                [default_logprob(token, place) for place, token in enumerate(segment.token_ids)]
            )
        else:
            assert (segment.trainable, segment.logprobs) == (False, None)

    (call,) = trajectory.calls
    assert (call.call_id, call.turn, call.index) == (f"{trajectory.id}/b1r0a0/0/0", 0, 0)
    assert (call.tool, call.action, call.outcome.observation) == ("python", CALL, "2")
    assert (call.outcome.valid, call.outcome.error) == (True, ToolErrorKind.NONE)
    times = call.timings
    assert 0 < times.stop_read_ns <= times.dispatched_ns <= times.result_ns
    calling, answering = trajectory.action_timings
    assert (calling.turn, answering.turn) == (0, 1)
    assert 0 < calling.asked_ns < calling.first_ns <= times.stop_read_ns <= calling.acted_ns
    assert calling.acted_ns <= times.result_ns <= answering.asked_ns
    assert answering.asked_ns < answering.first_ns <= answering.acted_ns
    clock = trajectory.timings
    assert abs(clock.clock_s + answering.acted_ns / 1e9 - time.time()) < 60
    assert min(clock.open_s, clock.generate_s, clock.tool_s, clock.reward_s) > 0
    assert clock.wall_s >= clock.open_s + clock.generate_s

    (opened,) = here.tools.opened
    assert f"/{trajectory.id}/b1r0a0@" in opened.session_id
    assert dict(opened.metadata) == {"number": 0.0}
    assert opened.lease.seconds == 60
    (asked,) = here.tools.asked
    assert (asked.session_id, asked.call_id) == (opened.session_id, call.call_id)
    assert (asked.tool, asked.action, dict(asked.arguments)) == ("python", CALL, {"code": "1+1"})
    assert (asked.turn, asked.turns_left, asked.last_step) == (0, 3, False)
    assert asked.queue_limit.seconds == 60
    assert not asked.run_limit.ToNanoseconds()  # the tool's own limit holds
    assert 0 < asked.wait.seconds <= 30
    assert here.tools.closed == [opened.session_id]


async def test_the_ids_of_a_turn_begin_with_all_ids_of_the_turn_before(
    world: MakeWorld, codec: HuggingFaceCodec
) -> None:
    """Byte for byte, and what is stored is what was sent and received."""

    def script(request: ScriptRequest) -> Sequence[int]:
        turn = codec.decode(request.input_ids).count("</result>")
        reply = f"é{turn}\n<python> {turn}+1</python>" if turn < 3 else ANSWER
        # Other tokens than encoding the text would give: a rollout must keep the sampler's own.
        return [i for c in reply.partition("<python>")[0] for i in codec.encode(c)] + codec.encode(
            "".join(reply.partition("<python>")[1:])
        )

    here = await world(script=script, run={**ONE, "group_size": 4})
    group = await here.group()
    assert len(group.members) == 4
    for trajectory in group.members:
        (sequence,) = trajectory.sequences
        sent = requests_of(here, trajectory.id)
        assert len(sent) == 4
        for earlier, later in itertools.pairwise(sent):
            assert later[: len(earlier)] == earlier
            assert len(later) > len(earlier)
        position = 0
        before = []
        for segment in sequence.segments:
            if segment.author is Author.MODEL:
                before.append(tuple(sequence.token_ids[:position]))
            position += len(segment.token_ids)
        assert sent == before


async def test_the_call_goes_out_while_the_stream_still_runs(world: MakeWorld) -> None:
    """After a text stop: the call is made, the request aborted, and later tokens enter nothing."""
    junk = "junk" * 200
    aborted: list[str] = []

    def script(request: ScriptRequest) -> Sequence[int]:
        said = here.codec.decode(request.input_ids)
        # `>x` is one token: the stop ends inside it, and it stays whole.
        return here.codec.encode(ANSWER if "</result>" in said else f"<run> 1+1</run>x{junk}")

    tools = ToolDouble(tools=[LONG_STOP])
    here = await world(
        script=script, tools=tools, timing=Timing(tokens_per_second=400), run={**ONE}
    )
    abort = here.sampler.scheduler.abort

    def recording(rid: str = "", *, abort_all: bool = False) -> None:
        aborted.append(rid)
        abort(rid, abort_all=abort_all)

    here.sampler.scheduler.abort = recording  # type: ignore[method-assign]
    async with here.engine() as run:
        (group,) = await run.learner.lease()
        (trajectory,) = group.members
        assert here.sampler.scheduler.running == 0

    assert here.texts(trajectory)[1:] == [
        ("model", "<run> 1+1</run>x"),
        ("tool", "<result> 2</result>"),
        ("model", ANSWER),
    ]
    (call,) = trajectory.calls
    assert (call.action, call.outcome.observation) == ("<run> 1+1</run>", "2")
    assert here.tools.asked[0].action == "<run> 1+1</run>"
    first, second = here.sampler.requests
    assert "junk" not in here.codec.decode(second.input_ids)
    assert first.rid in aborted
    assert second.rid not in aborted
    assert first.body["sampling_params"]["stop_token_ids"] == [  # type: ignore[index]
        here.codec.token_id("<|im_end|>")
    ]
    assert trajectory.timings.generate_s < 1.5  # the stream alone takes two seconds


SCENES = {
    "tool error": ["<python> 1/0</python>", ANSWER],
    "invalid": ["1+1</python>", ANSWER],
    "done": ["<python> 7</python>", ANSWER],
    "silent failure": ["<python> 8</python>", ANSWER],
    "max turns": [CALL],
    "no action": ["hello<|im_end|>"],
    "empty": ["<|im_end|>"],
    "long action": ["<answer> " + "9" * 100],
    "long observation": ["<python> 5</python>", ANSWER],
    "full response": ["x" * 50 + "<python> 5</python>"],
    "bare end": ["hello"],
}
LIMITS = {"turns": 2, "action": 80, "observation": 60, "response": 150, "model": 2000}


def play(request: pb.CallToolRequest) -> pb.CallResult:
    """What the scenes' tool does."""
    code = str(request.arguments["code"])
    kinds = reasons.ToolErrorKind
    if code == "1/0":
        error = pb.ToolError(kind=kinds.TOOL_ERROR_KIND_EXCEPTION, message="ZeroDivisionError")
        return text("division by zero", error=error)
    if code == "8":
        error = pb.ToolError(kind=kinds.TOOL_ERROR_KIND_TIMEOUT, message="stopped after 10 s")
        return text("", error=error, reward=-0.5, metrics={"cpu_s": 1.5})
    if code == "7":
        return text("over", done=True)
    return text("o" * 100) if code == "5" else add_up(request)


async def played(world: MakeWorld, codec: HuggingFaceCodec) -> dict[str, Trajectory]:
    """Every scene's trajectory: scene number n is the task number n."""
    replies = list(SCENES.values())

    def script(request: ScriptRequest) -> Sequence[int]:
        said = codec.decode(request.input_ids)
        number = int(said.partition("what is ")[2].partition("+")[0])
        turn = said.count("</result>")
        return codec.encode(replies[number][min(turn, len(replies[number]) - 1)])

    here = await world(
        script=script,
        tools=ToolDouble(play),
        run={"steps": 1, "groups_per_step": len(SCENES), "group_size": 1},
        task={"limits": LIMITS},
    )
    async with here.engine() as run:
        groups = await run.learner.lease(count=len(SCENES))
        await until(lambda: not here.tools.live, "the sessions' end")
    by_number = {t.task.metadata["number"]: t for g in groups for t in g.members}
    return {name: by_number[number] for number, name in enumerate(SCENES)}


async def test_scenes(world: MakeWorld, codec: HuggingFaceCodec) -> None:
    scenes = await played(world, codec)

    def shown(name: str) -> list[str]:
        return [
            codec.decode(segment.token_ids)
            for segment in scenes[name].sequences[0].segments
            if segment.author is Author.TOOL
        ]

    def ending(name: str) -> tuple[Status, StopReason, int]:
        found = scenes[name]
        assert not found.masked
        return found.status, found.stop_reason, len(found.calls)

    whole, cut = Status.COMPLETED, Status.TRUNCATED

    # A tool that failed is shown to the policy, which goes on.
    assert shown("tool error") == ["<result> division by zero</result>"]
    assert scenes["tool error"].calls[0].outcome.error is ToolErrorKind.EXCEPTION
    assert ending("tool error") == (whole, StopReason.ANSWERED, 1)
    failed = scenes["silent failure"].calls[0].outcome
    assert shown("silent failure") == ["<result> stopped after 10 s</result>"]
    assert (failed.error, failed.reward) == (ToolErrorKind.TIMEOUT, -0.5)
    assert failed.metrics == {"cpu_s": 1.5}

    # So is an action that nobody could read; no service was asked.
    assert shown("invalid") == ["<result> </python> without <python></result>"]
    assert not scenes["invalid"].calls[0].outcome.valid
    assert scenes["invalid"].calls[0].timings.dispatched_ns == 0
    assert ending("invalid") == (whole, StopReason.ANSWERED, 1)

    assert shown("done") == ["<result> over</result>"]
    assert ending("done") == (whole, StopReason.TOOL_SIGNALED_DONE, 1)

    # The last permitted turn ends in a call: it is kept, and not made.
    assert ending("max turns") == (cut, StopReason.MAX_TURNS, 2)
    actions = [s for s in scenes["max turns"].sequences[0].segments if s.author is Author.MODEL]
    assert [codec.decode(s.token_ids) for s in actions] == [CALL] * 3
    assert [s.turn for s in actions] == [0, 1, 2]

    assert ending("no action") == (whole, StopReason.NO_ACTION_IN_OUTPUT, 0)
    assert scenes["no action"].metadata["final_text"] == "hello"
    assert ending("empty") == (whole, StopReason.EMPTY_OUTPUT, 0)
    assert ending("bare end") == (whole, StopReason.NO_ACTION_IN_OUTPUT, 0)

    assert ending("long action") == (cut, StopReason.MAX_ACTION_LENGTH, 0)
    assert scenes["long action"].response_tokens == 80

    # 60 tokens of it, marker included: the ends stay.
    (observation,) = shown("long observation")
    assert observation == f"<result> {'o' * 28} ... {'o' * 27}</result>"
    assert [event.kind for event in scenes["long observation"].events] == ["observation_truncated"]
    assert ending("long observation") == (whole, StopReason.ANSWERED, 1)

    assert ending("full response") == (cut, StopReason.MAX_RESPONSE_LENGTH, 1)
    full = scenes["full response"].sequences[0]
    assert len(full.token_ids) - len(full.segments[0].token_ids) == LIMITS["response"]


@pytest.mark.parametrize("fits", [True, False])
async def test_the_model_s_context_is_a_limit_too(world: MakeWorld, fits: bool) -> None:
    """A prompt that fills it is an end, not a crash."""
    here = await world(run=ONE)
    prompt = "<|im_start|>user\nwhat is 0+1?<|im_end|>\n<|im_start|>assistant\n"
    room = len(here.codec.encode(prompt + CALL)) + 3 if fits else 5
    trajectory = await here.trajectory(f"task.limits.model={room}")
    assert trajectory.stop_reason is StopReason.MAX_MODEL_LENGTH
    if fits:
        assert len(trajectory.sequences[0].token_ids) == room
    else:
        assert [s.author for s in trajectory.sequences[0].segments] == [Author.PROMPT]
        assert here.sampler.requests == ()


async def test_the_clock_of_a_trajectory(world: MakeWorld) -> None:
    """A tool that takes too long ends it; what was said so far stays."""

    here = await world(tools=held(asyncio.Event()), run=ONE, task={"limits": {"seconds": 0.5}})
    trajectory = await here.trajectory()
    assert (trajectory.status, trajectory.stop_reason) == (
        Status.TIMED_OUT,
        StopReason.TRAJECTORY_TIMEOUT,
    )
    assert here.texts(trajectory)[1:] == [("model", CALL)]
    assert not trajectory.masked


async def test_threads_of_the_reward_function_end_with_the_engine(world: MakeWorld) -> None:
    def threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "reward"}

    before = threads()
    here = await world(run=ONE)
    async with here.engine() as run:
        await run.learner.lease()
        assert threads() - before
    await until(lambda: threads() <= before, "the threads' end")
