"""Trajectories of the `browser` tool, in a tool host of the test's own process."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any, Self

from tests.support.site import Site
from tests.support.trajectory import Trajectory
from toolsvc.host.host import Host
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.tools.browser.browser_tool import BrowserOptions, BrowserTool
from toolsvc.types import Result, Text


@contextlib.asynccontextmanager
async def serving(
    *allow: str, sandbox: SandboxConfig | None = None, **options: Any
) -> AsyncIterator[Host]:
    chosen = BrowserOptions.model_validate({"allow": allow, **options})
    async with Host([BrowserTool(chosen, sandbox or SandboxConfig())]) as running:
        yield running


PATIENCE = {"queue_limit": 60.0, "run_limit": 60.0}
"""Seconds, so that a busy machine fails no test."""


class Surfer:
    """A trajectory that reads what it sees, and ends with its block."""

    def __init__(self, host: Host, pages: Site) -> None:
        self.trajectory = Trajectory(host, "browser")
        self.pages = pages
        self.seen = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.trajectory.close()

    async def act(
        self, action: str, *, limits: dict[str, Any] | None = None, **more: Any
    ) -> Result:
        arguments = {"action": action, **more}
        call = json.dumps({"name": "browser", "arguments": arguments})
        result = await self.trajectory.act(
            f"<tool_call>{call}</tool_call>", **{**PATIENCE, **(limits or {})}
        )
        self.seen = "".join(part.text for part in result.observation if isinstance(part, Text))
        return result

    async def go(self, path: str) -> str:
        return await self.do("navigate", url=self.pages.url(path))

    async def do(self, action: str, **more: Any) -> str:
        """What the policy reads of an action that works."""
        result = await self.act(action, **more)
        assert result.error is None, result
        return self.seen

    async def fail(self, action: str, **more: Any) -> str:
        result = await self.act(action, **more)
        assert result.error is not None, result
        assert not result.error.session_lost
        return self.seen

    def ref(self, marked: str) -> str:
        """Of the element whose line begins so, in what was read last."""
        found = re.search(rf"- {re.escape(marked)}.*?\[ref=(\w+)\]", self.seen)
        assert found, (marked, self.seen)
        return found[1]

    async def click(self, marked: str) -> str:
        return await self.do("click", ref=self.ref(marked))
