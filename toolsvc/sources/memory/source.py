"""The source `memory:ADDRESS`."""

from __future__ import annotations

from typing import Any

from toolsvc.errors import StartError
from toolsvc.plugin.tool import Tool
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.elsewhere import Source
from toolsvc.sources.memory.client import MemoryClient
from toolsvc.sources.memory.options import MemoryOptions


class MemorySource(Source):
    where = "ADDRESS"
    description = "The tool `plan`, which finds tools that agents made before (`memory serve`)."
    Config = MemoryOptions

    @classmethod
    async def tools(cls, where: str, options: Any, sandbox: SandboxConfig) -> list[Tool]:
        if not where:
            raise StartError("memory: needs an address: memory:127.0.0.1:50071")
        from toolsvc.sources.memory.plan_tool import PlanTool

        return [PlanTool(MemoryClient(where), options, sandbox)]
