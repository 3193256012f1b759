"""The real SGLang on CPU: it samples the policy, it plays the tools, and it gets new weights over a
group of processes.

One server with a tiny random model is started for the whole file. What it writes makes no sense,
which is the point: nothing here knows beforehand what it will be.
"""

from __future__ import annotations

import asyncio
import json
import string
from array import array
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from engine.core.protocols.tagged import Tagged
from engine.core.sampler.openai.pool import OpenAIPool
from engine.core.sampler.policy_sampler import GenerateRequest, PolicySampler
from engine.core.sampler.pool import SamplerPool
from engine.core.sampler.stops import StopTable
from engine.core.text.codec import HuggingFaceCodec
from engine.core.text.conversation_codec import ConversationCodec
from engine.offline.fixed_weights import fix_weights
from engine.types import Codec
from tests.contract import real_sampler
from tests.integration.engine.conftest import MakeWorld
from tests.integration.engine.test_tool_lines import ONE_IN_FLIGHT, call, rolled_out
from tests.support.dialogue import ANSWER, by_turn
from tests.support.lasting import lasting
from tests.support.other_weights import write_other_weights
from tests.support.policy import write_policy
from tests.support.rank0_process import rank0
from tests.support.waiting import until
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.recipe import Sampler
from toolwright.rpc.errors import ServiceError
from toolwright.types import SamplingParams, StopReason, Task, ToolErrorKind

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

VOCABULARY = 320
ORACLE = f"""
import random
from toolsvc import RawFormat, Tool


class Oracle(Tool):
    name = "oracle"
    description = "Takes whatever is said up to a letter, and answers otherwise every time."
    format = RawFormat()
    stop_strings = tuple({string.printable!r})

    def call(self, state, call):
        return " ".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=8))
"""
SKY: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "sky",
        "description": "Tells what the sky is like over a town.",
        "parameters": {
            "type": "object",
            "properties": {"town": {"type": "string"}},
            "required": ["town"],
        },
    },
    "returns": {
        "type": "object",
        "properties": {"sky": {"enum": ["clear", "cloudy", "dark"]}},
        "required": ["sky"],
    },
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy folder with everything: tokenizer, chat template, random weights."""
    folder = write_policy(tmp_path_factory.mktemp("model"))
    return real_sampler.write_model(folder, 1, str(VOCABULARY))


@pytest.fixture(scope="module")
def sglang(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("sglang") / "server.log"
    options = ("--grammar-backend", "xgrammar", "--constrained-json-disable-any-whitespace")
    with real_sampler.serve(model, log, *options, text=True) as url:
        yield url


async def test_its_api_of_openai_says_what_its_own_says(model: Path, sglang: str) -> None:
    """Completions after the same prompt; chat after the same messages, in an assistant's message
    that the server goes on with."""
    codec = HuggingFaceCodec(model)
    table = {"endpoints": (sglang,), "temperature": 0.0}
    own = SamplerPool(Sampler(**table), codec, vocab_size=codec.vocab_size)
    turns = ConversationCodec(codec)
    text = OpenAIPool(
        Sampler(api="openai-completions", **table), codec, vocab_size=codec.vocab_size
    )
    chat = OpenAIPool(Sampler(api="openai-chat", **table), turns, vocab_size=turns.vocab_size)
    async with AsyncExitStack() as stack:
        for pool in (own, text, chat):
            stack.push_async_callback(pool.close)
            await pool.open()
        fix_weights(own)
        expected = await _said(own, codec)
        assert len(expected[0]) > 4
        assert await _said(text, codec) == expected
        assert await _said(chat, turns) == expected
        (told,) = chat.statistics().values()
    assert told["kind"] == "sglang"
    assert told["usage"]["requests_told"] == told["requests"] == 2
    assert told["failures"] == {}


async def _said(pool: PolicySampler, codec: Codec) -> list[str]:
    """Two actions of Tagged with an observation between them; what ends the first is a letter that
    the policy says, so that a server which cuts stops away would be found out."""
    protocol = Tagged()
    token_ids = array("i", protocol.prompt(Task(id="t", prompt="Which word?"), (), codec))
    texts = []
    for letters in (string.ascii_letters, ""):
        generated = await pool.generate(
            GenerateRequest(
                key="t",
                token_ids=token_ids,
                sampling=SamplingParams(temperature=0.0),
                max_new_tokens=24,
                stops=StopTable([*letters[-4:], codec.end_of_turn], codec),
            )
        )
        texts.append(codec.decode(generated.token_ids))
        head, tail = protocol.frame(generated.stop, codec)
        token_ids = token_ids + generated.token_ids
        token_ids += array("i", [*head, *protocol.observation(["so"], codec), *tail])
    return texts


async def test_a_greedy_run_on_a_cassette_is_the_recorded_one_token_for_token(
    world: MakeWorld, tmp_path: Path, model: Path, sglang: str
) -> None:
    """An observation is what the policy says its next words after, so one wrong token would show
    in all that follow."""
    (tmp_path / "oracle.py").write_text(ORACLE, encoding="utf-8")
    here = await world(**ONE_IN_FLIGHT, policy=model)
    here.tables["sampler"] = {"endpoints": [sglang], "temperature": 0.0}
    here.tables["task"]["protocol_options"] = {"observation": "{text}"}
    record = ["--set", 'cassette.record=["oracle.py"]']
    recorded = await rolled_out(here, "recorded", {"serve": ["cassette:run.jsonl", *record]})
    (tmp_path / "oracle.py").unlink()
    replayed = await rolled_out(here, "replayed", {"serve": ["cassette:run.jsonl"]})

    actions = [c.action for t in recorded for c in t.calls]
    assert len(actions) == 24
    assert len(set(actions)) > 4  # what it says depends on what it has read
    assert [lasting(t).calls for t in replayed] == [lasting(t).calls for t in recorded]
    for before, after in zip(recorded, replayed, strict=True):
        (one,), (other,) = before.sequences, after.sequences
        assert one.token_ids == other.token_ids
        assert one.loss_mask == other.loss_mask
        assert before.stop_reason is after.stop_reason


@pytest.mark.parametrize("constrained", [True, False])
async def test_tools_that_sglang_plays(
    world: MakeWorld, tmp_path: Path, sglang: str, constrained: bool
) -> None:
    """Told the schema, it keeps to it. Not told, a model that writes nonsense is asked again and
    then is a failure that the policy reads; nothing else breaks."""
    (tmp_path / "tools.json").write_text(json.dumps([SKY]), encoding="utf-8")
    here = await world(**ONE_IN_FLIGHT)
    oslo, bergen = call("sky", town="Oslo"), call("sky", town="Bergen")
    here.sampler._script = by_turn(here.codec, [oslo, call("sky", twon="x"), oslo, bergen, ANSWER])
    options = {
        "endpoint": f"{sglang}/v1",
        "model": "tiny",
        "max_tokens": 24,
        "regenerations": 1,
        "constrained": str(constrained).lower(),
    }
    words = [
        word for name, value in options.items() for word in ("--set", f"simulated.{name}={value}")
    ]
    line = {"serve": ["simulated:tools.json", *words], "run_limit_s": 120.0}
    trajectories = await rolled_out(here, "played", line)
    for trajectory in trajectories:
        assert trajectory.stop_reason is StopReason.ANSWERED
        first, wrong, again, other = (call.outcome for call in trajectory.calls)
        assert json.loads(wrong.invalid_reason)["error"]["stage"] == "pre"
        for one in (first, again, other):
            told = json.loads(one.observation)
            if constrained:
                assert one.error is ToolErrorKind.NONE
                assert told["sky"] in ("clear", "cloudy", "dark")
            else:
                assert one.error is ToolErrorKind.EXCEPTION
                said = told["error"]
                assert (said["type"], said["stage"]) == ("validation_error", "post")
        assert not constrained or again.observation == first.observation
    # One world: what was answered once holds for all sessions.
    if constrained:
        assert len({trajectory.calls[0].outcome.observation for trajectory in trajectories}) == 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Said:
    """What the server writes without chance."""

    ids: list[int]
    logprobs: list[float]

    def __eq__(self, other: object) -> bool:
        """Batches with other requests change a log-prob's last bits."""
        close = pytest.approx(self.logprobs, abs=1e-5)
        return isinstance(other, Said) and self.ids == other.ids and other.logprobs == close


async def greedy(url: str) -> Said:
    body = {
        "input_ids": [5, 6, 7, 8] * 4,
        "return_logprob": True,
        "sampling_params": {"max_new_tokens": 12, "temperature": 0.0, "ignore_eos": True},
    }
    async with (
        aiohttp.ClientSession() as session,
        session.post(url + "/generate", json=body) as answer,
    ):
        told = (await answer.json())["meta_info"]["output_token_logprobs"]
    return Said(ids=[token for _, token, _ in told], logprobs=[logprob for logprob, _, _ in told])


async def test_weights_over_a_group_are_those_of_the_folder(
    world: MakeWorld, tmp_path: Path, model: Path, sglang: str
) -> None:
    """A learner that is killed amid a broadcast, or before its group stands, leaves the server able
    to serve what it served, and to take the next publish."""
    other = write_other_weights(model, tmp_path / "other")
    here = await world(run={"steps": 9, "groups_per_step": 1, "group_size": 1}, policy=model)
    here.tables["sampler"] = {"endpoints": [sglang]}
    here.tables["task"]["limits"] = {"turns": 2, "model": 4096, "response": 64}
    async with here.engine() as run:
        server = run.engine._pool.named(sglang)
        at = [run.at(step) for step in range(6)]
        await run.learner.publish(at[1], other)
        from_folder = await greedy(sglang)
        await run.learner.publish(at[2], model)
        before = await greedy(sglang)
        assert before != from_folder

        async with rank0(run, other) as learner:
            await learner.join(at[3])
            names = list(learner.shapes)
            await learner.bucket(0, names[:5])
            await learner.bucket(1, names[5:])
            await learner.publish.commit()
        assert await greedy(sglang) == from_folder
        assert await server.weights() == str(at[3])
        (group,) = await run.learner.lease(at[3])
        assert at[3] in group.members[0].weight_versions

        # Killed in its second broadcast: the server waits for the folder of what it served.
        async with rank0(run, model) as learner:
            await learner.join(at[4])
            await learner.bucket(0, names[:5])
            asked = asyncio.create_task(learner.ask(1, names[5:]))
            await until(lambda: run.engine._broadcasts._open.state.bucket[0] == 1, "the bucket")  # type: ignore[union-attr, index]
            learner.process.kill()
            with pytest.raises(ServiceError, match=r"Connection closed by peer|reset") as caught:
                await asked
            assert caught.value.reason == reasons.ERROR_REASON_PUBLISH_FAILED
        await until(lambda: f"waits for the folder of {at[3]}" in server.why, "the reason")
        assert not server.up.is_set()
        await run.learner.publish(at[3], other)
        await until(server.up.is_set, "the server")
        assert await greedy(sglang) == from_folder
        assert await server.weights() == str(at[3])

        # Killed before its group stands: nothing was touched.
        async with rank0(run, model) as learner:
            await learner.publish.begin(at[4])
            await learner.tell(met=True)  # a server that comes later looks for it for half an hour
            learner.process.kill()
            await until(lambda: run.engine._broadcasts._open is None, "its end")
        assert await greedy(sglang) == from_folder
        async with rank0(run, model) as learner:
            await learner.join(at[4])
            await learner.bucket(0, names)
            await learner.publish.commit()
        assert await greedy(sglang) == before
