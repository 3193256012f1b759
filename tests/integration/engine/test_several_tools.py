"""Several tools in one session: on one service, on several, and tools that one session alone
has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.errors import StartupError
from tests.integration.engine.conftest import MakeWorld, World
from tests.integration.toolsvc.conftest import start_service
from tests.support.dialogue import ANSWER, by_turn
from tests.support.net import free_port
from tests.support.recipes import ONE
from tests.support.tools import JSON_CALL, LONG_STOP, PYTHON, ToolDouble, serving, text
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import StopReason, ToolErrorKind, Trajectory

pytestmark = pytest.mark.quick

SMALL = ("--ready", "1", "--shards", "1", "--memory-mib", "192")
FILE = '''
from toolsvc import tool


@tool
def scale(value: float, by: float) -> float:
    """Multiplies."""
    return value * by
'''


@contextmanager
def service(folder: Path, *words: str) -> Iterator[str]:
    """Address of a `toolsvc serve` in a process of its own."""
    (folder / "scale.py").write_text(FILE, encoding="utf-8")
    words = tuple(str(folder / word) if word.endswith(".py") else word for word in words)
    running = start_service(folder / f"tools-{free_port()}.log", *words)
    try:
        yield running.address
    finally:
        running.process.terminate()
        assert running.process.wait(30) == 0


TURNS = [
    "<python> x = 6 * 7; print(x)</python>",
    "<bash> cd /tmp; y=8</bash>",
    '<tool_call>{"name": "scale", "arguments": {"value": 1.5, "by": 2}}</tool_call>',
    "<bash> echo $y in $PWD</bash>",
    "<python> print(x + 1)</python>",
    "echo 1</bash>",
    '<tool_call>{"name": "fly", "arguments": {}}</tool_call>',
    '<tool_call>{"name": "scale", "arguments": {"value": "much"}}</tool_call>',
    ANSWER,
]
"""Each tool keeps its own state; then an action that no parser takes, a name that nobody knows,
and arguments that do not fit."""


async def rolled_out(here: World, turns: Sequence[str] = TURNS) -> Trajectory:
    here.sampler._script = by_turn(here.codec, turns)
    here.tables["task"]["limits"] = {"turns": 8, "seconds": 60}
    for table in here.tables["tools"].values():
        table["run_limit_s"] = 30.0
    group = await here.group()
    return group.members[0]


def check(trajectory: Trajectory) -> None:
    calls = trajectory.calls
    assert [c.tool for c in calls] == [
        "python", "bash", "scale", "bash", "python", "bash", "bash", "scale",
    ]  # fmt: skip
    shown = [call.outcome.observation.strip() for call in calls]
    assert shown[0].startswith("42")
    assert shown[2] == "3.0"
    assert "8 in /tmp" in shown[3]
    assert shown[4].startswith("43")
    assert [c.outcome.valid for c in calls] == [True] * 5 + [False] * 3
    assert calls[5].outcome.invalid_reason == "</bash> without <bash>"
    assert "no function 'fly'" in calls[6].outcome.invalid_reason  # bash has functions of its own
    assert calls[7].outcome.invalid_reason.startswith("scale: value: ")
    assert {call.outcome.error for call in calls[5:]} == {ToolErrorKind.INVALID_ACTION}
    assert trajectory.stop_reason is StopReason.ANSWERED


async def test_on_two_services(world: MakeWorld, tmp_path: Path) -> None:
    """A table that names some of a service's tools gets those."""
    here = await world(run=ONE)
    with (
        service(tmp_path, "bash", "scale.py", *SMALL) as second,
        service(tmp_path, "python", "bash", *SMALL) as first,
    ):
        here.tables["tools"] = {
            "python": {"service": first, "names": ["python"]},
            "rest": {"service": second},
        }
        trajectory = await rolled_out(here)
    check(trajectory)
    shown = [said for author, said in here.texts(trajectory) if author == "tool"]
    outcomes = [call.outcome for call in trajectory.calls]
    assert shown == [
        f"<result> {one.observation or one.invalid_reason}</result>" for one in outcomes
    ]


async def test_stops_of_all_services_end_an_action(world: MakeWorld) -> None:
    """The one that comes first, be it one token or many; its service alone is called."""
    async with serving(ToolDouble(lambda _: text("ran", tool="run"), tools=[LONG_STOP])) as other:
        here = await world(run=ONE)
        here.tables["tools"]["other"] = {"service": other.address}
        said = "<run> a</run>", "<python> 1+1</python><run> never</run>", ANSWER
        trajectory = await rolled_out(here, said)
    assert [(c.tool, c.outcome.observation) for c in trajectory.calls] == [
        ("run", "ran"),
        ("python", "2"),
    ]
    assert [request.tool for request in here.tools.asked] == ["python"]
    assert [request.tool for request in other.asked] == ["run"]
    assert other.closed == [other.opened[0].session_id] == here.tools.closed


class PerQuestion(ToolDouble):
    """Every session has the tools that its question asks for."""

    async def ListTools(self, request: pb.ListToolsRequest, context: Any) -> pb.ListToolsResponse:
        return pb.ListToolsResponse(service="made per question")

    async def OpenSession(
        self, request: pb.OpenSessionRequest, context: Any
    ) -> pb.OpenSessionResponse:
        opened: pb.OpenSessionResponse = await super().OpenSession(request, context)
        number = int(request.metadata["number"])
        opened.ClearField("tools")
        for letter in "ab"[: number + 1]:
            tool = opened.tools.add()
            tool.CopyFrom(JSON_CALL)
            tool.name = f"{letter}{number}"
            tool.usage = f"how to use {tool.name}"
            tool.stop_strings.append("</tool_call>")
        return opened


async def test_tools_that_one_session_alone_has(world: MakeWorld) -> None:
    """The prompt shows them, their calls reach them, and another session's are unknown."""
    double = PerQuestion(lambda request: text(f"{request.tool} ran", tool=request.tool))
    async with serving(double):
        here = await world(run={**ONE, "groups_per_step": 2})
        here.tables["tools"]["made"] = {"service": double.address}
        here.tables["task"]["protocol_options"] = {"system": "{usage}"}
        b1 = '<tool_call>{"name": "b1", "arguments": {}}</tool_call>'
        here.sampler._script = by_turn(here.codec, [b1, ANSWER])
        async with here.engine() as run:
            groups = await run.learner.lease(count=2)
    first, second = sorted((g.members[0] for g in groups), key=lambda t: t.task.id)
    usage = PYTHON.usage
    assert f"system\n{usage}\n\nhow to use a0<" in here.texts(first)[0][1]
    assert f"system\n{usage}\n\nhow to use a1\n\nhow to use b1<" in here.texts(second)[0][1]
    assert first.calls[0].outcome.invalid_reason == "there is no tool 'b1', only python, a0"
    assert first.calls[0].outcome.error is ToolErrorKind.UNKNOWN_TOOL
    assert second.calls[0].outcome.observation == "b1 ran"
    assert len(double.asked) == 1


async def test_a_tool_that_a_call_made_is_there_from_the_next_turn_on(world: MakeWorld) -> None:
    """Its own stop ends an action then; before, that was plain text."""

    def make(request: pb.CallToolRequest) -> pb.CallResult:
        if request.tool == "python":
            return text("made", new_tools=[LONG_STOP])
        return text("it ran", tool=request.tool)

    here = await world(tools=ToolDouble(make), run=ONE)
    said = "<run> no</run> <python> 1</python>", "<run> yes</run>", ANSWER
    trajectory = await rolled_out(here, said)
    assert [(call.tool, call.action) for call in trajectory.calls] == [
        ("python", "<run> no</run> <python> 1</python>"),
        ("run", "<run> yes</run>"),
    ]
    assert trajectory.calls[1].outcome.observation == "it ran"


async def test_two_services_with_a_tool_of_one_name_are_named(world: MakeWorld) -> None:
    async with serving(ToolDouble(tools=[PYTHON, LONG_STOP])) as other:
        here = await world(run=ONE)
        here.tables["tools"]["other"] = {"service": other.address}
        with pytest.raises(StartupError, match=r"tools\.python and tools\.other both .*'python'"):
            async with here.engine():
                pass
        here.tables["tools"]["other"]["names"] = ["run"]
        async with here.engine() as run:
            await run.learner.lease()


async def test_a_name_that_a_session_has_twice_is_the_first_services(world: MakeWorld) -> None:
    class Late(PerQuestion):
        async def OpenSession(
            self, request: pb.OpenSessionRequest, context: Any
        ) -> pb.OpenSessionResponse:
            opened = await super().OpenSession(request, context)
            opened.tools.add().CopyFrom(PYTHON)
            return opened

    async with serving(Late()) as other:
        here = await world(run=ONE)
        here.tables["tools"]["other"] = {"service": other.address}
        group = await here.group()
        assert group.members[0].calls[0].outcome.observation == "2"
        assert not other.asked
