"""An engine, an ingress and `agents serve` as processes of a test, and agents to start."""

from __future__ import annotations

import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ingress.config import IngressTable
from ingress.serving import served
from tests.integration.engine.conftest import World
from tests.support.engines import Running
from tests.support.recipes import merged, write_recipe
from toolwright.chat.tokenizer import ChatTokenizer

TEN_TURNS = '''
"""Ten turns with tools, by OpenAI's own client."""
import json, os
from openai import OpenAI

with open(os.environ["TOOLWRIGHT_TASK"], encoding="utf-8") as file:
    task = json.load(file)
assert "answers" not in task
tool = {"type": "function", "function": {"name": "look", "description": "looks",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}}}
client, messages = OpenAI(), list(task["messages"])
for _ in range(10):
    found = client.chat.completions.create(model=os.environ["OPENAI_MODEL"], messages=messages,
                                           tools=[tool])
    message = found.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    for call in message.tool_calls or ():
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "a wall"})
    if not message.tool_calls:
        messages.append({"role": "user", "content": "go on"})
print("ten turns")
with open(os.environ["TOOLWRIGHT_RESULT"], "w", encoding="utf-8") as file:
    json.dump({"answer": message.content, "reward": 0.25}, file)
'''

ONE_CALL = '''
"""One model call by the standard library alone."""
import json, os, urllib.request

def say(text):
    body = {"model": "policy", "messages": [{"role": "user", "content": text}]}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
         "Content-Type": "application/json"})
    with urllib.request.urlopen(request) as response:
        return json.load(response)["choices"][0]["message"]["content"]
'''


@dataclass(kw_only=True)
class Hosts:
    """An ingress runs; `start()` starts `agents serve`."""

    recipe: Path
    ingress: str
    changes: dict[str, Any]
    processes: list[Process] = field(default_factory=list)

    async def start(self, *words: str) -> Process:
        """`agents serve` on the recipe, after its first line."""
        process = await create_subprocess_exec(
            *(sys.executable, "-m", "agents.cli", "serve", str(self.recipe)),
            *("--ingress", self.ingress, "--listen", "127.0.0.1:0", *words),
            stdout=PIPE,
            stderr=PIPE,
        )
        self.processes.append(process)
        assert process.stdout is not None
        await process.stdout.readline()
        return process


@asynccontextmanager
async def agent_hosts(
    here: World, agent: dict[str, Any], script: str, **changes: Any
) -> AsyncIterator[Hosts]:
    """Hosts of a world whose agents are the Python program `script`, unless `agent` says otherwise.
    The engine is started with `changes` of the result."""
    (here.folder / "agent.py").write_text(script, encoding="utf-8")
    kind = agent.get("kind", "command")
    command = {"command": ["python", "agent.py"]} if kind == "command" else {}
    sandbox = {"sandbox": "none"} if kind in ("command", "function") else {}
    table = {"kind": kind, **command, **sandbox, **agent}
    changes = merged({"task": {"agent": table}, "engine": {"drain_s": 0.05}}, changes)
    policy = Path(here.tables["policy"]["model"])
    listen = IngressTable(address="127.0.0.1:0")
    engine = here.tables["run"]["engine"]
    async with served(partial(ChatTokenizer, policy), listen, engine=engine) as http:
        recipe = write_recipe(here.folder, merged(here.tables, changes))
        found = Hosts(recipe=recipe, ingress=f"http://127.0.0.1:{http.port}", changes=changes)
        try:
            yield found
        finally:
            for process in found.processes:
                if process.returncode is None:
                    process.terminate()
                if process.stderr is not None and not process.stderr.at_eof():
                    await process.communicate()


@asynccontextmanager
async def hosted(
    here: World, agent: dict[str, Any], script: str, **changes: Any
) -> AsyncIterator[tuple[Running, Hosts]]:
    """An engine beside these hosts, the first of which is started."""
    async with (
        agent_hosts(here, agent, script, **changes) as hosts,
        here.engine(**hosts.changes) as run,
    ):
        await hosts.start()
        yield run, hosts


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def living(word: str) -> list[int]:
    """Processes whose command line has the word."""
    return [pid for pid, line in _command_lines() if word in line]


def _command_lines() -> list[tuple[int, str]]:
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                line = (process / "cmdline").read_bytes().decode("utf-8", "replace")
            except OSError:
                continue
            found.append((int(process.name), line))
    return found
