"""Agents as they are published, unchanged, play ten calls with tools; each in its own process.

`make test-agents` installs them: constraints/agents.txt, clients/package.json.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.integration.ingress.test_openai_client import check_record
from tests.support.agents import END, TEN, Served, call_text, served_agents, written_call

pytestmark = pytest.mark.slow

CLIENTS = Path(__file__).with_name("clients")

OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "MSWEA_COST_TRACKING": "ignore_errors"}
"""litellm fetches prices otherwise, and mini-swe-agent refuses a model without a price."""


def parents(served: Served) -> list[int | None]:
    """The call that each call goes on from with its exact ids; None for a prompt of its own."""
    nodes = served.engine.nodes
    for node in nodes:
        if node.parent is not None:
            before = nodes[node.parent]
            ids = before.prompt + before.completion
            assert node.prompt[: len(ids)] == ids
    return [node.parent for node in nodes]


async def play(*command: str | Path, cwd: Path, **more: str) -> str:
    """What the client prints. It has its home in the folder `cwd`, and no key of the user's.

    more: environment variables.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "HOME": str(cwd), **OFFLINE, **more},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(150):
            printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    text = printed.decode(errors="replace")
    assert process.returncode == 0, text
    return text


@pytest.mark.parametrize(
    ("client", "kind"),
    [
        ("openai_agents", "chat"),
        ("openai_agents", "responses"),
        ("langgraph", "whole"),
        ("langgraph", "streamed"),
        ("ai", "whole"),
        ("ai", "streamed"),
    ],
)
async def test_ten_calls_are_one_sequence(
    agents: Path, qwen: Path, tmp_path: Path, client: str, kind: str
) -> None:
    async with served_agents(qwen, TEN) as served:
        if client == "ai":
            text = (CLIENTS / "play_ai.mjs").read_text(encoding="utf-8")
            words = ("node", "--input-type=module", "--eval", text, served.url, kind)
            await play(*words, cwd=agents)  # --eval finds the packages of its working folder
        else:
            script = CLIENTS / f"play_{client}.py"
            await play(agents / "bin/python", script, served.url, kind, cwd=tmp_path)
        check_record(served)


THOUGHT = "<think>\nhm\n</think>\n\n"
LOOKS = [call_text(f"{number}") + END for number in range(9)]
CODE = [f"{THOUGHT}I look.\n<code>\nprint(look('{n}'))\n</code>{END}" for n in range(9)]


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("ToolCallingAgent", [*LOOKS, written_call("final_answer", answer="Done.") + END]),
        ("CodeAgent", [*CODE, f"<code>\nfinal_answer('Done.')\n</code>{END}"]),
    ],
)
async def test_each_call_of_smolagents_is_a_sequence(
    agents: Path, qwen: Path, tmp_path: Path, kind: str, texts: list[str]
) -> None:
    """It never sends a reply back: it writes the reply's calls into the history, as text."""
    script = CLIENTS / "play_smolagents.py"
    async with served_agents(qwen, texts) as served:
        printed = await play(agents / "bin/python", script, served.url, kind, cwd=tmp_path)
        assert printed.splitlines()[-1] == "Done."
        assert parents(served) == [None] * 10
        last = served.tokenizer.decode(served.engine.nodes[-1].prompt)
        assert last.count("Calling tools:\n[{'id': ") == 9


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])
async def test_mini_swe_agent_leaves_out_a_reply_without_a_call(
    agents: Path, qwen: Path, tmp_path: Path, provider: str
) -> None:
    """The next call goes on from the call before that reply. The others are one sequence."""
    command = written_call("bash", command="printf 'a\\n'; false")
    texts = [f"I count.\n{command}", THOUGHT + command, *[command] * 2, "No call."]
    texts += [f"{command}\n{command}"] * 5 + [
        written_call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
    ]
    script = CLIENTS / "play_mini_swe_agent.py"
    async with served_agents(qwen, [text + END for text in texts]) as served:
        printed = await play(agents / "bin/python", script, served.url, provider, cwd=tmp_path)
        assert printed.splitlines()[-1] == "Submitted"
        assert parents(served) == [None, 0, 1, 2, 3, 3, 5, 6, 7, 8, 9]
        results = [one.text for one in served.engine.calls[-1].prompt.results]
        assert results == ['{\n  "returncode": 1,\n  "output": "a\\n"\n}'] * 2
