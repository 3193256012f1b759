"""Tool services that the engine starts itself: how they begin, die, come back and end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest

from bench.scripted import ScriptRequest
from engine.core.tools import output_log
from engine.core.tools.process import ToolProcess
from engine.core.tools.services import ToolServices
from engine.errors import StartupError
from tests.integration.engine.conftest import MakeWorld
from tests.integration.engine.test_process import ended, process
from tests.support.dialogue import ANSWER, by_turn
from tests.support.waiting import until
from toolwright.recipe import Tool
from toolwright.types import StopReason

pytestmark = pytest.mark.quick

RUN = {"steps": 1, "groups_per_step": 2, "group_size": 1}
FRAIL = """
import os
import time
from pathlib import Path
from toolsvc import tool

while Path("down").exists() and not Path("go").exists():
    time.sleep(0.01)
print("a word before it serves", "y" * 200_000)


@tool
def frail(text: str) -> str:
    "Takes its whole service down, once, which is back when it may."
    print("x" * 200_000)
    if not Path("down").exists():
        Path("down").touch()
        os.kill(os.getpid(), 9)
    return text.upper()
"""
LOUD = """
import sys
import threading
import time
from toolsvc import tool


def say() -> None:
    for number in range(5000):
        print(f"line {number} ", "x" * 400, file=(sys.stdout, sys.stderr)[number % 2], flush=True)
        if number % 100 == 0:
            time.sleep(0.05)
    while True:  # the one that is printed while a new file begins may be lost
        print("the end", flush=True)
        time.sleep(0.05)


threading.Thread(target=say, daemon=True).start()


@tool
def loud(text: str) -> str:
    "Prints much."
    return text
"""
PAIRED = """
import time
from pathlib import Path
from toolsvc import tool

Path("{own}").touch()
for _ in range(2000):
    if Path("{other}").exists():
        break
    time.sleep(0.01)
else:
    raise SystemExit("{other} is not started beside it")


@tool
def {own}(text: str) -> str:
    "Says it again."
    return text
"""
RECORD = ("--set", 'cassette.record=["finish"]')
SAID = ["<frail>hello</frail>", ANSWER]


def children(parent: int) -> list[psutil.Process]:
    return psutil.Process(parent).children()


async def test_one_that_dies_is_started_again_with_its_work(
    world: MakeWorld, tmp_path: Path
) -> None:
    (tmp_path / "frail.py").write_text(FRAIL, encoding="utf-8")
    (tmp_path / "go").touch()
    here = await world(run=RUN)
    here.tables["tools"] = {"tool": {"serve": ["frail.py"]}}
    here.sampler._script = by_turn(here.codec, SAID)
    async with process(here) as (engine, learner):
        groups = await learner.lease(count=2, wait=60)
        (service,) = children(engine.pid)
        assert service.terminal() is None
        engine.terminate()
        assert (await ended(engine))[0] == 0
        assert not service.is_running()
    trajectories = [group.members[0] for group in groups]
    assert {t.stop_reason for t in trajectories} == {StopReason.ANSWERED}
    assert [t.calls[0].outcome.observation for t in trajectories] == ["HELLO", "HELLO"]
    log = (tmp_path / "run" / "engine.jsonl").read_text(encoding="utf-8")
    assert (log.count("tool_service_started"), log.count("tool_service_ended")) == (2, 1)
    printed = (tmp_path / "run" / "tools.tool.log").read_text(encoding="utf-8")
    assert printed.count("a word before it serves") == 2
    assert printed.count("x") >= 400_000
    assert printed.count("y") >= 400_000


async def test_what_a_service_prints_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whatever way it prints, before it serves and after."""
    monkeypatch.setattr(output_log, "LIMIT", 100_000)
    monkeypatch.setattr(output_log, "LOOK_SECONDS", 0.02)
    (tmp_path / "loud.py").write_text(LOUD, encoding="utf-8")
    log, older = tmp_path / "tools.tool.log", tmp_path / "tools.tool.older.log"
    service = ToolProcess("tool", Tool(serve=("loud.py",)), folder=tmp_path, output=log)
    await service.start()
    running = asyncio.create_task(service.keep_running())

    def is_through() -> bool:
        files = [file for file in (log, older) if file.exists()]
        return any("the end" in file.read_text(encoding="utf-8") for file in files)

    try:
        await until(is_through, "the last line")
    finally:
        running.cancel()
        await asyncio.wait({running})
        await service.stop()
    assert older.stat().st_size > 0
    assert log.stat().st_size + older.stat().st_size < 1_500_000  # of 2 MB that were printed


async def test_attempts_wait_for_the_one_that_died(world: MakeWorld, tmp_path: Path) -> None:
    """The member that had ended before is not the only one left of its group."""
    (tmp_path / "frail.py").write_text(FRAIL, encoding="utf-8")
    here = await world(run={**RUN, "groups_per_step": 1, "group_size": 2})
    here.tables["tools"] = {"tool": {"serve": ["frail.py"]}}
    calls, answers = by_turn(here.codec, SAID), by_turn(here.codec, [ANSWER])

    def script(request: ScriptRequest) -> Iterable[int]:
        return (answers if "-0/" in request.conversation else calls)(request)

    here.sampler._script = script
    async with here.engine() as run:
        assert await run.learner.lease(run.version, wait=2) == []
        (tmp_path / "go").touch()
        (group,) = await run.learner.lease(run.version, wait=60)
    assert [t.stop_reason for t in group.members] == [StopReason.ANSWERED] * 2
    assert [t.attempt for t in group.members] == [0, 0]  # it keeps no state


async def test_several_start_at_once(tmp_path: Path) -> None:
    """Each takes its minutes beside the others. What is described comes in the recipe's order."""
    tools: dict[str, Tool] = {}
    for own, other in (("left", "right"), ("right", "left")):
        (tmp_path / f"{own}.py").write_text(PAIRED.format(own=own, other=other), encoding="utf-8")
        tools[own] = Tool(serve=[f"{own}.py"])
    services = ToolServices(
        tools,
        "an owner",
        {
            name: ToolProcess(name, table, folder=tmp_path, output=tmp_path / f"{name}.log")
            for name, table in tools.items()
        },
    )
    try:
        found = await services.open()
    finally:
        await services.close()
    assert [(name, *(tool.name for tool in found[name])) for name in found] == [
        ("left", "left"),
        ("right", "right"),
    ]


async def test_it_does_not_outlive_a_killed_engine(world: MakeWorld, tmp_path: Path) -> None:
    (tmp_path / "frail.py").write_text(FRAIL, encoding="utf-8")
    here = await world(run=RUN)
    here.tables["tools"] = {
        "tool": {"serve": ["frail.py"]},
        "workers": {"serve": ["finish", "--workers", "2"]},
    }
    async with process(here) as (engine, _):
        services = psutil.Process(engine.pid).children(recursive=True)
        assert len(services) >= 4  # one, and a supervisor with two workers
        engine.send_signal(signal.SIGKILL)
        assert (await ended(engine))[0] == -signal.SIGKILL
    await until(lambda: not any(one.is_running() for one in services), "the services' end")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["absent.py"], r"tools\.tool: `toolsvc serve absent\.py`: .*absent\.py"),
        (["python", "--set", "python.no=1"], r"`toolsvc serve python --set python\.no=1`: .*no"),
        (["cassette:broken.py", *RECORD], r"broken\.py is there already: name another file"),
        (["broken.py"], r"ZeroDivisionError"),
        (["deaf.py"], r"it ended with exit code 3"),
        (["wordy.py"], r"`toolsvc serve wordy\.py`: x{4096} \("),
    ],
)
async def test_one_that_does_not_start_is_one_sentence(
    world: MakeWorld, tmp_path: Path, words: list[str], says: str
) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    (tmp_path / "deaf.py").write_text("import os\nos._exit(3)\n", encoding="utf-8")
    (tmp_path / "wordy.py").write_text(
        "import os\nos.write(2, b'x' * 200_000)\nos._exit(3)\n", encoding="utf-8"
    )
    here = await world(run=RUN)
    here.tables["tools"] = {"tool": {"serve": words}, "beside": {"serve": ["finish"]}}
    before = children(psutil.Process().pid)
    with pytest.raises(StartupError, match=says) as caught:
        async with here.engine():
            pass
    assert "\n" not in str(caught.value)
    assert "tools.tool.log" in str(caught.value)
    assert children(psutil.Process().pid) == before
