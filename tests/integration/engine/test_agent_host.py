"""`agents serve` as a process beside a real engine and a real ingress."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from engine.core.text.codec import HuggingFaceCodec
from tests.integration.engine.conftest import MakeWorld
from tests.support.agents import TEN
from tests.support.dialogue import by_turn
from tests.support.hosted_agents import ONE_CALL, TEN_TURNS, agent_hosts, hosted, is_alive, living
from tests.support.policy import QWEN_TEMPLATE, write_policy
from tests.support.recipes import ONE, PAIR
from tests.support.waiting import until
from toolwright.types import Author, StopReason

pytestmark = pytest.mark.slow

TURN = "<|im_start|>assistant"


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    think = ("<think>", "</think>")
    folder = tmp_path_factory.mktemp("qwen") / "p"
    return write_policy(folder, template=QWEN_TEMPLATE, special=think)


async def test_a_command_plays_ten_turns_with_tools(world: MakeWorld, qwen: Path) -> None:
    script = by_turn(HuggingFaceCodec(qwen), [TEN[0], *TEN], mark=TURN)
    here = await world(script=script, policy=qwen, run=ONE)
    async with hosted(here, {"reward_from": "agent"}, TEN_TURNS) as (run, _):
        (group,) = await run.learner.lease(run.version)
        (trajectory,) = group.members
    (sequence,) = trajectory.sequences
    written = [one for one in sequence.segments if one.author is Author.MODEL]
    assert len(written) == 10
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert trajectory.reward == 0.25
    assert trajectory.metadata["answer"] == "Done."
    (output,) = [one for one in trajectory.events if one.kind == "agent_output"]
    assert "ten turns" in output.data["output"]


PULLS = """#!/bin/sh
case $1 in image) exit 1;; pull) touch $0.pulls; exec sleep 600;; esac
"""
"""podman whose registry does not answer."""


@pytest.mark.skipif(os.geteuid() != 0, reason="a container gets its network from root")
async def test_a_stop_ends_the_preparation(
    world: MakeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    podman = tmp_path / "podman"
    podman.write_text(PULLS, encoding="utf-8")
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    here = await world(script=["hello"], run=ONE)
    async with agent_hosts(here, {"kind": "container", "image": "localhost/none"}, "") as hosts:
        host = await hosts.start()
        await until((tmp_path / "podman.pulls").exists, "podman pull")
        host.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await host.wait() == 0


FUNCTION = """
import asyncio
from openai import AsyncOpenAI

async def play(task, client):
    await asyncio.sleep(0)
    openai = AsyncOpenAI(base_url=client.base_url, api_key=client.api_key)
    found = await openai.chat.completions.create(model=client.model, messages=task["messages"])
    return {"answer": found.choices[0].message.content, "parts": {"form": 0.5}}
"""


async def test_a_function_is_called_in_a_process_of_its_own(world: MakeWorld) -> None:
    here = await world(run=ONE)
    agent = {"kind": "function", "function": "./agent.py:play", "reward_from": "agent"}
    async with hosted(here, agent, FUNCTION) as (run, _):
        (group,) = await run.learner.lease(run.version)
        (trajectory,) = group.members
    assert trajectory.reward == 0.5
    assert trajectory.metadata["answer"]


DAEMON = (
    ONE_CALL
    + """
import subprocess, sys
code = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.setsid()"
code += "; os.fork() and os._exit(0); time.sleep(600)  # DAEMON"
subprocess.Popen([sys.executable, "-c", code, os.environ["TOOLWRIGHT_MARK"]])
say("hello")
sys.exit(3)
"""
)


async def test_no_process_of_an_agent_outlives_its_trajectory(
    world: MakeWorld, tmp_path: Path
) -> None:
    mark = f"mark-{tmp_path}"
    here = await world(run=ONE)
    agent = {"environment": {"TOOLWRIGHT_MARK": mark}}
    async with hosted(here, agent, DAEMON) as (run, _):
        (group,) = await run.learner.lease(run.version)
        (trajectory,) = group.members
        await until(lambda: not living(mark), "the end of the agent's processes", seconds=10)
    assert trajectory.stop_reason is StopReason.ANSWERED
    (failed,) = [one for one in trajectory.events if one.kind == "agent_failed"]
    assert failed.data["error"] == "exit code 3"


FIRST_FAILS = (
    ONE_CALL
    + """
import pathlib, sys, time
seen = pathlib.Path(os.environ["TOOLWRIGHT_SEEN"])
number = len(list(seen.iterdir()))
(seen / f"{number}-{os.getpid()}").touch()
if number == 0:
    sys.exit(1)  # before the first call
say("hello")
if number == 1:
    sys.exit(75)
"""
)


async def test_infrastructure_failures_get_another_attempt(
    world: MakeWorld, tmp_path: Path
) -> None:
    (tmp_path / "seen").mkdir()
    here = await world(run=ONE)
    agent = {"environment": {"TOOLWRIGHT_SEEN": str(tmp_path / "seen")}, "retry_exits": [75]}
    async with hosted(here, agent, FIRST_FAILS) as (run, _):
        (group,) = await run.learner.lease(run.version)
        (trajectory,) = group.members
    assert trajectory.attempt == 2
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert len(list((tmp_path / "seen").iterdir())) == 3


HANGS_ONCE = (
    ONE_CALL
    + """
import pathlib, time
say("hello")
print("first call", flush=True)
once = pathlib.Path(os.environ["TOOLWRIGHT_SEEN"])
(once / f"{os.getpid()}").touch()
while not (once / "go").exists():
    time.sleep(0.05)
"""
)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_agents_of_a_dead_host_start_again(
    world: MakeWorld, tmp_path: Path, number: int
) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    here = await world(run=PAIR)
    agent = {"environment": {"TOOLWRIGHT_SEEN": str(seen)}}
    async with hosted(here, agent, HANGS_ONCE) as (run, hosts):
        (first,) = hosts.processes
        await until(lambda: len(list(seen.iterdir())) == 2, "two agents")
        pids = {int(one.name) for one in seen.iterdir()}
        first.send_signal(number)
        await first.wait()
        await until(
            lambda: not any(map(is_alive, pids)),
            "the agents' end",
            seconds=10,
        )
        (seen / "go").touch()
        await hosts.start()
        (group,) = await run.learner.lease(run.version)
    assert [one.attempt for one in group.members] == [1, 1]
    assert {one.stop_reason for one in group.members} == {StopReason.ANSWERED}


async def test_a_host_whose_place_is_taken_ends_with_one_sentence(
    world: MakeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "seen").mkdir()
    (tmp_path / "other").mkdir()
    here = await world(run=ONE)
    agent = {"environment": {"TOOLWRIGHT_SEEN": str(tmp_path / "seen")}}
    async with hosted(here, agent, HANGS_ONCE) as (run, hosts):
        (first,) = hosts.processes
        await until(lambda: any((tmp_path / "seen").iterdir()), "the first agent")
        monkeypatch.setenv("TMPDIR", str(tmp_path / "other"))  # as on another machine
        await hosts.start()
        _, errors = await first.communicate()
        (tmp_path / "seen" / "go").touch()
        (group,) = await run.learner.lease(run.version)
    assert first.returncode == 1
    last = errors.decode().splitlines()[-1]
    assert last.startswith("agents: the engine refuses agents serve: ")
    assert "a later process is the worker" in last
    assert [one.attempt for one in group.members] == [1]


async def test_agents_outlive_their_engine(world: MakeWorld, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    here = await world(run=PAIR)
    agent = {"environment": {"TOOLWRIGHT_SEEN": str(seen)}, "at_once": 1}
    async with agent_hosts(here, agent, HANGS_ONCE) as hosts:
        async with here.engine(**hosts.changes):
            await hosts.start()
            await until(lambda: len(list(seen.iterdir())) == 1, "the first agent")
        (pid,) = (int(one.name) for one in seen.iterdir())
        async with here.engine(**hosts.changes) as run:
            assert is_alive(pid)
            (seen / "go").touch()
            (group,) = await run.learner.lease(run.version)
    assert [one.attempt for one in group.members] == [0, 0]
    assert {one.stop_reason for one in group.members} == {StopReason.ANSWERED}
    assert len(list(seen.iterdir())) == 3  # the first agent, the second, and "go"


async def test_an_agent_is_ended_at_the_time_limit(world: MakeWorld, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    here = await world(run=ONE, task={"limits": {"seconds": 3.0}})
    agent = {"environment": {"TOOLWRIGHT_SEEN": str(seen)}}
    async with hosted(here, agent, HANGS_ONCE) as (run, _):
        (group,) = await run.learner.lease(run.version)
        (pid,) = (int(one.name) for one in seen.iterdir())
        await until(lambda: not is_alive(pid), "the agent's end", seconds=10)
    (trajectory,) = group.members
    assert trajectory.stop_reason is StopReason.TRAJECTORY_TIMEOUT
    assert len(trajectory.sequences) == 1


JAILED = (
    ONE_CALL
    + """
import socket, subprocess, sys, time
answer = say("hello")
found = []
for address in json.loads(os.environ["BAIT"]):
    try:
        socket.create_connection(tuple(address), 2).close()
        found.append(address)
    except OSError:
        pass
for path in json.loads(os.environ["HIDDEN"]):
    try:
        found.append([path, os.listdir(path)])
    except OSError:
        pass
reward = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/reward", b'{"reward": 1}',
    {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
try:
    found.append(urllib.request.urlopen(reward).status)
except urllib.error.HTTPError as error:
    print("reward", error.code)
code = "import os, time; os.setsid(); os.fork() and os._exit(0); open('up', 'w'); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", code, os.environ["MARK"]])
while not os.path.exists("up"):
    time.sleep(0.05)
print("variables", [name for name in os.environ if "REWARD" in name or "TOKEN" in name])
print("user", os.getuid() != 0)
with open(os.environ["TOOLWRIGHT_RESULT"], "w") as file:
    json.dump({"answer": json.dumps(found)}, file)
sys.exit(4)
"""
)


@pytest.mark.parametrize("sandbox", ["bwrap", "firejail"])
async def test_a_jailed_agent_reaches_the_ingress_alone(
    world: MakeWorld, tmp_path: Path, sandbox: str
) -> None:
    here = await world(run=ONE)
    mark = f"mark-{tmp_path}"
    engine = here.tables["run"]["engine"].rpartition(":")
    hidden = [str(tmp_path), "/root", "/work", "/home"]
    bait = [["127.0.0.1", int(engine[2])], ["1.1.1.1", 53]]
    variables = {"BAIT": json.dumps(bait), "HIDDEN": json.dumps(hidden), "MARK": mark}
    agent = {
        "sandbox": sandbox,
        "command": ["/usr/bin/python3", "agent.py"],
        "environment": variables,
    }
    async with hosted(here, agent, JAILED) as (run, _):
        (group,) = await run.learner.lease(run.version)
        await until(lambda: not living(mark), "the end of the agent's processes", seconds=10)
    (trajectory,) = group.members
    output = "".join(e.data["output"] for e in trajectory.events if e.kind == "agent_output")
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert trajectory.metadata["answer"] == "[]", output
    assert "variables []\nuser True" in output
    (failed,) = [one for one in trajectory.events if one.kind == "agent_failed"]
    assert failed.data["error"].startswith("exit code 4")
    assert len(trajectory.sequences) == 1
