"""`engine eval` of a model behind an OpenAI-compatible API."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from engine.errors import StartupError
from engine.offline.evaluate.results.table import table
from tests.integration.engine.conftest import MakeWorld
from tests.support.engines import finished
from tests.support.evaluated import asked, lines
from tests.support.evaluations import lane, suite
from tests.support.openai_api import DONE, STREAM, Api, answer, api, event, listed, usage
from tests.support.recipes import merged, write_recipe
from tests.support.stills import words_of
from tests.support.waiting import until

pytestmark = pytest.mark.quick


def said(text: str) -> bytes:
    """A chat completion that tells its tokens."""
    first = event(delta={"role": "assistant", "content": text})
    return STREAM + first + event(delta={}, finish_reason="stop") + usage(1000, 50) + DONE


def sampled_by(server: Api) -> dict[str, Any]:
    """Changes of a recipe whose policy is `big` behind the API."""
    return {"sampler": {"api": "openai-chat", "endpoints": [server.url + "/v1"], "model": "big"}}


async def test_a_model_behind_an_api_is_asked_in_chat(world: MakeWorld) -> None:
    here = await world(engine=lane(suite("nq", 3)))
    async with api(said("<answer> 2</answer>"), models=listed("big")) as server:
        changes = sampled_by(server)
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


async def test_the_policys_own_words_go_back_as_the_assistants(world: MakeWorld) -> None:
    here = await world(engine=lane(suite("nq", 1)))
    call = "Hm. <python>1 + 1</python>"
    async with api(said(call), said("<answer> 2</answer>"), models=listed("big")) as server:
        changes = sampled_by(server)
        await asked(here, changes=changes)
    _, answer, observed = server.asked[1].body["messages"]
    assert answer == {"role": "assistant", "content": call}
    assert observed["role"] == "user"


async def test_a_key_that_was_left_out_is_in_every_file(world: MakeWorld) -> None:
    here = await world(engine=lane(suite("nq", 3, temperature=0.6)))
    fault = {"loc": ["body", "temperature"], "msg": "Extra inputs are not permitted"}
    refused = answer(422, {"detail": [fault]})
    async with api(refused, said("<answer> 2</answer>"), models=listed("big")) as server:
        changes = sampled_by(server)
        found = await asked(here, changes=changes, concurrency=1)
    assert [one.body.get("temperature") for one in server.asked] == [0.6, None, None, None]
    folder = here.folder / "eval"
    counts = {"actions": 1, "left_out/temperature": 1}
    assert [row["sampled"] for row in lines(folder)] == [counts] * 3
    assert found["sets"][0]["sampled"] == {"actions": 3, "left_out/temperature": 3}
    sentence = "nq: 3 of 3 actions were sampled without temperature: the server refuses it"
    assert any(line.startswith(f"warning: {sentence}") for line in table(found))
    assert sentence in words_of((folder / "page.html").read_text(encoding="utf-8"))
    sample = json.loads((folder / "samples.jsonl").read_text(encoding="utf-8").splitlines()[0])
    (note,) = sample["sampled"]
    assert (note["left_out"], note["model"], note["prompt_tokens"]) == (
        ["temperature"],
        "big",
        1000,
    )


async def test_a_key_that_is_refused_ends_the_command_with_one_line(world: MakeWorld) -> None:
    """While two rows are asked at once, so that their errors come in a group."""
    here = await world(engine=lane(suite("nq", 3)))

    async def refuses(writer: asyncio.StreamWriter) -> None:
        await until(lambda: len(server.asked) >= 2, "two rows in flight")
        writer.write(answer(401, {"error": {"message": "no such key"}}))

    async with api(refuses, models=listed("big")) as server:
        changes = sampled_by(server)
        file = write_recipe(here.folder, merged(here.tables, changes))
        output = here.folder / "eval"
        words = ("eval", file, "--output", output, "--concurrency", 2)
        code, out, said = await finished(*words)
    assert code == 1, said
    assert len(server.asked) == 2
    assert "Traceback" not in said + out
    (line,) = [line for line in said.splitlines() if line.startswith("engine: ")]
    assert said.splitlines()[-1] == line
    assert "answered 401: no such key" in line
    assert "sampler.key_env" in line
    assert lines(here.folder / "eval") == []


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
