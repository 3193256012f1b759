"""`engine eval` of a model behind an OpenAI-compatible API."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import StartupError
from tests.integration.engine.conftest import MakeWorld
from tests.support.evaluated import asked, lines
from tests.support.evaluations import lane, suite
from tests.support.openai_api import DONE, STREAM, api, event, listed, usage


def said(text: str) -> bytes:
    """A chat completion that tells its tokens."""
    first = event(delta={"role": "assistant", "content": text})
    return STREAM + first + event(delta={}, finish_reason="stop") + usage(1000, 50) + DONE


async def test_a_model_behind_an_api_is_asked_in_chat(world: MakeWorld) -> None:
    here = await world(engine=lane(suite("nq", 3)))
    async with api(said("<answer> 2</answer>"), models=listed("big")) as server:
        changes: dict[str, Any] = {
            "sampler": {"api": "openai-chat", "endpoints": [server.url + "/v1"], "model": "big"}
        }
        found = await asked(here, changes=changes)
        again = await asked(here, changes=changes)
    assert len(server.asked) == 3
    (one,) = found["sets"]
    assert (one["n"], one["score"], one["stops"]) == (3, 1.0, {"answered": 3})
    assert (one["input_tokens"], one["output_tokens"]) == (1000.0, 50.0)
    assert "big" in found["weights"]
    assert again["sets"] == found["sets"]
    assert not here.sampler.requests
    assert [row["errored"] for row in lines(here.folder / "eval")] == [""] * 3


async def test_how_a_conversation_is_sent_is_a_setting(world: MakeWorld) -> None:
    """Of one model, so that nothing else tells the two from each other."""
    here = await world(engine=lane(suite("nq", 1)))
    answer = said("<answer> 2</answer>")
    own = listed("big", owned_by="vllm")
    async with api(answer, models=listed("big")) as one, api(answer, models=own) as other:
        table = {"api": "openai-chat", "model": "big", "endpoints": [one.url + "/v1"]}
        await asked(here, changes={"sampler": table})
        with pytest.raises(StartupError, match=r"was begun with sampler .*vllm"):
            await asked(here, changes={"sampler": table | {"endpoints": [other.url + "/v1"]}})
        with pytest.raises(StartupError, match=r'was begun with sampler .*"user"'):
            await asked(here, changes={"sampler": table | {"observations": "user"}})
        both = table | {"endpoints": [one.url + "/v1", other.url + "/v1"]}
        with pytest.raises(StartupError, match=r"different kinds, other at .*, vllm at .*: set "):
            await asked(here, changes={"sampler": both})
