"""Tools of another service, as tools of this one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.toolsvc.conftest import Service
from tests.support.trajectory import Trajectory
from toolsvc.host.host import Host
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.loader import load_tools
from toolwright.types import ToolErrorKind

pytestmark = pytest.mark.quick

PLUGIN = """
from toolsvc import Result, Text, Tool, tool
from toolsvc.types import ToolError
from toolwright.types import ToolErrorKind

@tool
def leave(text: str) -> Result:
    "Says that the policy ended its session."
    error = ToolError(kind=ToolErrorKind.CRASHED, message=text, session_lost=True)
    return Result(observation=(Text(text=text),), error=error)
"""


async def test_a_policy_that_ended_its_session_there_is_told_by_each_call(
    start: Callable[..., Service], tmp_path: Path
) -> None:
    (tmp_path / "leave.py").write_text(PLUGIN, encoding="utf-8")
    service = start(str(tmp_path / "leave.py"))
    tools = await load_tools([f"grpc:{service.address}"], {}, SandboxConfig())
    async with Host(tools) as host:
        session = Trajectory(host, "leave")
        for text in ("it ended", "it has ended"):
            told = await session.act("", arguments={"text": text})
            assert (told.error.kind, told.error.message) == (ToolErrorKind.CRASHED, text)
            assert told.error.session_lost
        assert host.renew("tests", 60, [session.session_id]).lost == ()
