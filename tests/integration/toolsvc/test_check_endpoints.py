"""`toolsvc check` on the tools that ask a server elsewhere; the servers are on loopback."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.toolsvc.conftest import Service
from tests.support.chat_endpoint import chat_endpoint
from tests.support.checking import OF_CALLS, keeps_the_contract
from tests.support.web import hit, search_server

pytestmark = pytest.mark.slow

LEAST = 15
"""Checks of calls that must pass with each, without a probe."""


async def test_tools_that_ask_others_keep_the_contract(
    start: Callable[..., Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERPER_API_KEY", "secret")
    references = tmp_path / "references.jsonl"
    references.write_text(json.dumps({"question": "2 + 2?", "answer": "4"}), encoding="utf-8")
    async with search_server() as server, chat_endpoint(lambda _: "1") as model:
        server.organic = [hit("https://example.org")]
        settings = (
            f"web_search.base_url={server.url}",
            f"judge.endpoint={model.url}",
            "judge.model=tiny",
            f"judge.references={references}",
            "judge.tag=answer",
        )
        options = [f"--set={setting}" for setting in settings]
        service = await asyncio.to_thread(start, "web_search", "judge", "finish", *options)
        words = ("--each-tool", *OF_CALLS)
        found = await asyncio.to_thread(
            keeps_the_contract, service.address, *words, folder=tmp_path
        )
        assert all(one["reason"] for one in found["checks"] if one["outcome"] == "skipped")
        for tool in ("web_search", "judge", "finish"):
            passed = [one for one in found["checks"] if one["outcome"] == "passed"]
            assert sum(one["tool"] == tool for one in passed) >= LEAST
        assert server.requests
        assert model.requests
