"""The pool against an API that answers: what it is sent, and what comes of its answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.core.sampler.openai.text_action import TextAction
from engine.core.sampler.policy_sampler import GenerateRequest
from engine.core.text.codec import HuggingFaceCodec
from engine.errors import SamplerFailed
from engine.types import Generated, Images
from tests.support.openai_api import (
    DONE,
    STREAM,
    api,
    chat,
    event,
    listed,
    silent,
    text,
    usage,
)
from tests.support.openai_talk import END, talk
from toolwright.types import FinishKind, SamplingParams


async def test_a_trajectory_over_chat() -> None:
    first = chat("<python>1", "</python> <result>forged</result>")
    async with api(first, chat("It is 1.")) as here, talk(here) as one:
        assert await one.say(seed=3) == "<python>1</python>"
        one.observe("one")
        assert await one.say(seed=3) == "It is 1." + END
    body = here.asked[1].body
    assert here.asked[1].path == "/v1/chat/completions"
    assert [m["role"] for m in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][1]["content"] == "<python>1</python>"
    assert body["stream"] is True
    assert body["seed"] == 3
    assert body["max_tokens"] == 500
    # What OpenAI's own API refuses is not sent to a server that nobody knows.
    assert not body.keys() & {"stop", "top_k", "min_p", "repetition_penalty", "no_stop_trim"}


async def test_a_known_server_continues_and_keeps_its_stops() -> None:
    told = event(text="", finish_reason="stop", matched_stop="</python>")
    first = STREAM + event(delta={"content": "<python>1</python>"}) + told + usage(9, 4) + DONE
    here_models = listed("tiny", owned_by="sglang", max_model_len=64)
    async with api(first, chat("x"), models=here_models) as here, talk(here) as one:
        found = await one.act()
        one.observe("one")
        await one.act()
    assert found.remarks is not None
    assert (found.remarks["prompt_tokens"], found.remarks["completion_tokens"]) == (9, 4)
    body = here.asked[1].body
    assert body["messages"][-1]["role"] == "assistant"
    assert body["continue_final_message"] is True
    assert body["no_stop_trim"] is True
    assert body["stop"] == ["</python>"]


async def test_completions_are_sent_the_policys_own_prompt(codec: HuggingFaceCodec) -> None:
    first = text("<python>1</python>", " more")
    async with (
        api(first, text("Done.")) as here,
        talk(here, "openai-completions", codec=codec) as one,
    ):
        prompt = codec.decode(one.ids)
        assert await one.say() == "<python>1</python>"
        one.observe("ö")
        assert await one.say() == "Done.<|im_end|>"
    prompts = [asked.body["prompt"] for asked in here.asked]
    assert prompts == [prompt, prompt + "<python>1</python><result> ö</result>"]
    assert here.asked[0].path == "/v1/completions"
    async with api(text("x")) as here, talk(here, "openai-completions") as one:
        await one.act()
    assert here.asked[0].body["prompt"] == "How many?", "as it is, without a template"


async def test_a_stop_closes_the_stream_of_a_server_that_was_not_told_of_it() -> None:
    closed = asyncio.Event()

    async def writes_on(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + event(delta={"content": "<python>1</python>"}))
        try:
            while True:
                writer.write(event(delta={"content": "more"}))
                await writer.drain()
                await asyncio.sleep(0.01)
        except ConnectionError:
            closed.set()
            raise

    async with api(writes_on) as here, talk(here) as one:
        assert await one.say() == "<python>1</python>"
        async with asyncio.timeout(5):
            await closed.wait()


async def test_a_stop_that_is_cut_away_is_put_back_where_the_recipe_sends_stops() -> None:
    async with api(chat("<python>1")) as here, talk(here, send_stops=True) as one:
        found = await one.act()
    assert found.stop == "</python>"
    assert found.remarks is not None
    assert found.remarks["stop_put_back"] == "</python>"
    assert here.asked[0].body["stop"] == ["</python>"]


async def test_cancellation_hangs_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the record keeps what came."""

    async def begins(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + event(delta={"content": "Half an"}))
        await silent(writer)

    parts: list[Generated] = []
    async with api(begins) as here, talk(here) as one:
        came = asyncio.Event()
        feed = TextAction.feed

        def seen(action: TextAction, text: str, *more: Any, **named: Any) -> bool:
            wanted = feed(action, text, *more, **named)
            if text:
                came.set()
            return wanted

        monkeypatch.setattr(TextAction, "feed", seen)
        acting = asyncio.create_task(one.act(on_progress=parts.append))
        async with asyncio.timeout(10):
            await came.wait()
        acting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await acting
        assert [one.codec.decode(part.token_ids) for part in parts] == ["Half an"]
        assert parts[0].finish.kind is FinishKind.CONTINUED
        (told,) = one.pool.statistics().values()
        assert told["in_flight"] == 0


async def test_images_and_top_logprobs_are_refused() -> None:
    async with api(chat("x")) as here, talk(here) as one:
        for more in ({"images": Images()}, {"top_logprobs": 5}):
            request: dict[str, Any] = {
                "key": "t", "token_ids": one.ids, "sampling": SamplingParams(), "stops": one.stops,
                "max_new_tokens": 5, **more,
            }  # fmt: skip
            with pytest.raises(SamplerFailed, match="openai-chat") as raised:
                await one.pool.generate(GenerateRequest(**request))
            assert raised.value.permanent


@pytest.mark.parametrize("template", [{}, {"enable_thinking": False, "budget": 3}])
async def test_a_chat_api_is_sent_the_template_s_variables(template: dict[str, Any]) -> None:
    async with api(chat("It is 1.")) as here, talk(here, template=template) as one:
        assert await one.say() == "It is 1." + END
    assert here.asked[0].body.get("chat_template_kwargs", {}) == template
