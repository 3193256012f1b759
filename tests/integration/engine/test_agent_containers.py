"""Agents in containers of Debian's podman and runc, started by a real `agents serve`."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.errors import StartError
from agents.kinds.container import ContainerKind
from agents.kinds.kind import Site
from agents.process.keepers import Keepers
from tests.integration.engine.conftest import MakeWorld
from tests.support.containers.podman import IMAGE, Podman
from tests.support.hosted_agents import ONE_CALL, agent_hosts, hosted, living
from tests.support.recipes import ONE
from tests.support.waiting import until
from toolwright.recipe import Agent
from toolwright.types import StopReason

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="a container gets its network from root"),
]

AGENTS = "localhost/agents"

LOOKS_AROUND = (
    ONE_CALL
    + """
import pathlib, socket, subprocess, sys
answer = say("hello")
found = []
for address in json.loads(os.environ["BAIT"]):
    try:
        socket.create_connection(tuple(address), 2).close()
        found.append(address)
    except OSError:
        pass
for path in json.loads(os.environ["HIDDEN"]):
    if os.path.exists(path):
        found.append(path)
code = "import os, signal, time; signal.signal(15, signal.SIG_IGN); os.setsid()"
code += "; os.fork() and os._exit(0); open('/tmp/up', 'w'); time.sleep(600)"
subprocess.Popen(["python3", "-c", code, os.environ["MARK"]])
while not os.path.exists("/tmp/up"):
    pass
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print("processes", sum(name.isdecimal() for name in os.listdir("/proc")) < 9)
print("privileges", status["NoNewPrivs"].strip(), status["CapEff"].strip())
print("limits", [pathlib.Path(one).read_text().strip() for one in (
    "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max") if os.path.exists(one)])
print("variables", sorted(name for name in os.environ if "PROXY" in name.upper()),
      os.environ["HOME"], os.environ["MODE"])
with open(os.environ["TOOLWRIGHT_RESULT"], "w") as file:
    json.dump({"answer": json.dumps(found)}, file)
sys.exit(4)
"""
)
HANGS = (
    ONE_CALL
    + """
import subprocess, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
say("hello")
subprocess.Popen(["python3", "-c", "import time; time.sleep(600)", os.environ["MARK"]])
time.sleep(600)
"""
)


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    running = Podman(tmp_path_factory.mktemp("podman"))
    tree = tmp_path_factory.mktemp("root")
    for name, text in (("looks.py", LOOKS_AROUND), ("hangs.py", HANGS)):
        (tree / name).write_text(text, encoding="utf-8")
    running.add_image(AGENTS, tree)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        patch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        yield running
    running.end()


def agent(script: str, mark: str, **environment: str) -> dict[str, Any]:
    return {
        "kind": "container",
        "image": AGENTS,
        "command": ["python3", f"/{script}.py"],
        "memory_mib": 256,
        "processes": 50,
        "environment": {"MARK": mark, "HOME": "/tmp", "MODE": "fast", **environment},
    }


async def test_a_container_reaches_the_ingress_alone(
    podman: Podman, world: MakeWorld, tmp_path: Path
) -> None:
    here = await world(run=ONE)
    mark = f"mark-{tmp_path}"
    port = int(here.tables["run"]["engine"].rpartition(":")[2])
    table = agent(
        "looks",
        mark,
        BAIT=json.dumps([["127.0.0.1", port], ["1.1.1.1", 53]]),
        HIDDEN=json.dumps([str(tmp_path), "/work", "/home"]),
    )
    async with hosted(here, table, "") as (run, _):
        (group,) = await run.learner.lease(run.version)
        await until(lambda: not living(mark), "the end of the agent's processes", seconds=10)
        await until(lambda: not podman.ask("ps", "--all", "--quiet"), "the container's removal")
    (trajectory,) = group.members
    output = "".join(e.data["output"] for e in trajectory.events if e.kind == "agent_output")
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert trajectory.metadata["answer"] == "[]", output
    assert "processes True" in output
    assert "privileges 1 00000000000000eb" in output
    assert f"limits ['{256 << 20}', '50']" in output
    assert "variables [] /tmp fast" in output
    (failed,) = [one for one in trajectory.events if one.kind == "agent_failed"]
    assert failed.data["error"].startswith("exit code 4")


async def test_the_time_limit_ends_a_container(
    podman: Podman, world: MakeWorld, tmp_path: Path
) -> None:
    mark = f"mark-{tmp_path}"
    here = await world(run=ONE, task={"limits": {"seconds": 6.0}})
    async with hosted(here, agent("hangs", mark), "") as (run, _):
        (group,) = await run.learner.lease(run.version)
        await until(lambda: not living(mark), "the end of the agent's processes", seconds=15)
        await until(lambda: not podman.ask("ps", "--all", "--quiet"), "the container's removal")
    assert group.members[0].stop_reason is StopReason.TRAJECTORY_TIMEOUT


async def test_a_killed_host_leaves_no_process_and_the_next_one_no_container(
    podman: Podman, world: MakeWorld, tmp_path: Path
) -> None:
    mark = f"mark-{tmp_path}"
    here = await world(run=ONE)
    async with agent_hosts(here, agent("hangs", mark), "") as hosts, here.engine(**hosts.changes):
        first = await hosts.start()
        await until(lambda: len(living(mark)) == 1, "the agent's child")
        first.send_signal(signal.SIGKILL)
        await first.wait()
        await until(lambda: not living(mark), "the end of the agent's processes", seconds=15)
        left = podman.ask("ps", "--all", "--quiet", "--no-trunc").split()
        assert len(left) == 1
        await hosts.start()
        await until(
            lambda: not {*left} & {*podman.ask("ps", "--all", "--quiet", "--no-trunc").split()},
            "the removal of the first container",
        )


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"image": "localhost/none"}, "podman has no image localhost/none"),
        ({"image": IMAGE, "command": ("no-such-program",)}, "no-such-program"),
        ({"image": IMAGE}, "podman cannot run"),
    ],
    ids=str,
)
async def test_a_host_that_could_start_no_agent_says_so(
    podman: Podman, tmp_path: Path, rules: dict[str, Any], says: str
) -> None:
    site = Site(base=tmp_path / "base", ingress="http://127.0.0.1:1", keepers=Keepers())
    kind = ContainerKind(
        Agent(kind="container", **rules), site, rules.get("command", ()), seconds=60
    )
    with pytest.raises(StartError, match=says):
        await kind.prepare()
    assert podman.ask("ps", "--all", "--quiet") == ""
