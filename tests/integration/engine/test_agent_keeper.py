"""An agent's keeper: exit codes, ends, and processes that an agent leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from agents.process.agent_process import AgentProcess
from agents.process.keepers import end_adopted
from tests.support.hosted_agents import living
from tests.support.waiting import until

pytestmark = pytest.mark.slow

ENVIRONMENT: Mapping[str, str] = {"PATH": os.environ["PATH"]}


async def start(folder: Path, code: str, mark: str = "") -> AgentProcess:
    return await AgentProcess.start([sys.executable, "-c", code, mark], folder, ENVIRONMENT)


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("import sys; print('out', file=sys.stderr)", 0),
        ("import sys; print('out'); sys.exit(75)", 75),
        ("import os; print('out', flush=True); os.kill(os.getpid(), 15)", 128 + 15),
    ],
)
async def test_the_exit_code_is_the_agents(tmp_path: Path, code: str, exit_code: int) -> None:
    agent = await start(tmp_path, code)
    assert await agent.wait() == exit_code
    assert agent.output.text().startswith("out")


async def test_a_program_that_cannot_start_has_a_code_and_a_line(tmp_path: Path) -> None:
    agent = await AgentProcess.start(["/none"], tmp_path, ENVIRONMENT)
    assert await agent.wait() == 127
    assert agent.output.last_line().startswith("/none cannot be started")


async def test_the_kernel_ends_agents_first(tmp_path: Path) -> None:
    agent = await start(tmp_path, "print(open('/proc/self/oom_score_adj').read())")
    assert await agent.wait() == 0
    assert agent.output.last_line() == "1000"


async def test_an_agent_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True)"
    mark = f"mark-{tmp_path}"
    agent = await start(tmp_path, f"{code}; time.sleep(600)", mark)
    await until(lambda: agent.output.size > 0, "the agent's start")
    await agent.end()
    assert not living(mark)
    assert await agent.wait() == 128 + signal.SIGKILL


async def test_a_killed_keeper_takes_its_agent_with_it(tmp_path: Path) -> None:
    mark = f"mark-{tmp_path}"
    agent = await start(tmp_path, "import time; print(1, flush=True); time.sleep(600)", mark)
    await until(lambda: agent.output.size > 0, "the agent's start")
    os.kill(agent.pid, signal.SIGKILL)
    assert await agent.wait() == 128 + signal.SIGKILL
    await until(lambda: not [pid for pid in living(mark) if pid != agent.pid], "the agent's end")


async def test_the_end_of_a_killed_keeper_does_not_wait_for_what_holds_the_output(
    tmp_path: Path,
) -> None:
    code = "import os, time; os.fork() or (os.setsid(), os.fork() and os._exit(0), time.sleep(600))"
    mark = f"mark-{tmp_path}"
    agent = await start(tmp_path, f"{code}; print(1, flush=True); time.sleep(600)", mark)
    await until(lambda: agent.output.size > 0, "the agent's start")
    os.kill(agent.pid, signal.SIGKILL)
    async with asyncio.timeout(30):
        assert await agent.wait() == 128 + signal.SIGKILL
    left = [pid for pid in living(mark) if pid != agent.pid]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left, "something held the output"


def test_a_host_ends_children_that_it_did_not_start(tmp_path: Path) -> None:
    sleeps = [
        subprocess.Popen(["sleep", "600"], start_new_session=new) for new in (True, True, False)
    ]
    keeper, orphan, of_the_host = sleeps
    try:
        before = set(children()) - {orphan.pid, of_the_host.pid}
        end_adopted(before)
        assert orphan.wait(10) in (0, -signal.SIGKILL)  # 0: the function reaped it
        assert keeper.poll() is None
        assert of_the_host.poll() is None
    finally:
        for sleep in sleeps:
            sleep.kill()
            sleep.wait()


def children() -> list[int]:
    found = []
    for task in Path("/proc/self/task").iterdir():
        found += map(int, (task / "children").read_text(encoding="ascii").split())
    return found
