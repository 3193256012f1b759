"""A service whose tools a model plays, as people start it, in front of an endpoint on loopback."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

from tests.integration.toolsvc.conftest import Service
from tests.support.chat_endpoint import chat_endpoint
from tests.support.checking import OF_CALLS, check
from tests.unit.toolsvc.test_simulated_schemas import FILM


async def test_a_service_that_a_model_plays_keeps_the_contract(
    start: Callable[..., Service], tmp_path: Path
) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([FILM]))
    async with chat_endpoint(lambda _: '{"year": 2003}') as endpoint:
        running = await asyncio.to_thread(
            start,
            f"simulated:{tools}",
            *("--set", f"simulated.endpoint={endpoint.url}"),
            *("--set", "simulated.model=tiny"),
        )
        code, findings, shown = await asyncio.to_thread(
            check, running.address, *OF_CALLS, folder=tmp_path
        )
    assert code == 0, shown
    assert findings["passed"] >= 22, shown
    assert endpoint.requests


def test_a_model_that_was_not_named_is_one_sentence(
    serve_fails: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "tools.json").write_text(json.dumps([FILM]))
    told = serve_fails(f"simulated:{tmp_path / 'tools.json'}", environment=dict(os.environ))
    assert "--set simulated.endpoint: Field required" in told
