"""A service whose tools a model plays, as people start it, in front of an endpoint on loopback."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.toolsvc.conftest import Service
from tests.integration.toolsvc.test_commands import run
from tests.support.chat_endpoint import chat_endpoint
from tests.support.checking import OF_CALLS, keeps_the_contract
from tests.unit.toolsvc.test_simulated_schemas import FILM

pytestmark = pytest.mark.quick


@pytest.mark.slow
async def test_a_service_that_a_model_plays_keeps_the_contract(
    start: Callable[..., Service], tmp_path: Path
) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([FILM]), encoding="utf-8")
    async with chat_endpoint(lambda _: '{"year": 2003}') as endpoint:
        running = await asyncio.to_thread(
            start,
            f"simulated:{tools}",
            *("--set", f"simulated.endpoint={endpoint.url}"),
            *("--set", "simulated.model=tiny"),
        )
        await asyncio.to_thread(
            keeps_the_contract, running.address, *OF_CALLS, folder=tmp_path, least=22
        )
    assert endpoint.requests


async def test_tools_that_are_made_for_a_session_are_listed_and_called_from_a_terminal(
    start: Callable[..., Service],
) -> None:
    def plays(request: dict[str, Any]) -> str:
        makes = any("Question:" in one["content"] for one in request["messages"])
        return json.dumps([FILM]) if makes else '{"year": 2003}'

    async with chat_endpoint(plays) as endpoint:
        words = ("--set", f"simulated.endpoint={endpoint.url}", "--set", "simulated.model=tiny")
        address = (await asyncio.to_thread(start, "simulated:", *words)).address
        listed = await asyncio.to_thread(run, "list", address)
        told = ("--metadata", '{"question": "When?"}', "--arguments", '{"title": "Lost"}')
        called = await asyncio.to_thread(run, "call", address, "film", *told)
        of_session = ("--session", "s", *told)
        twice = [await asyncio.to_thread(run, "call", address, "film", *of_session) for _ in "ab"]
        missing = await asyncio.to_thread(run, "call", address, "simulated", *told)
    assert f"made for each session: toolsvc call {address} NAME" in listed.stdout
    assert (called.exit_code, json.loads(called.stdout)) == (0, {"year": 2003}), called.output
    assert [json.loads(one.stdout or "0") for one in twice] == [{"year": 2003}] * 2, twice[1].output
    assert missing.exit_code == 1
    assert "there is no tool 'simulated' here, only film" in missing.output
