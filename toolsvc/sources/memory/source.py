"""`memory:ADDRESS`: what the word means, and its options."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from toolsvc.errors import StartError
from toolsvc.plugin.results import MOST_TOKENS
from toolsvc.plugin.tool import STRICT, Tool
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.elsewhere import Source
from toolsvc.sources.memory.client import MemoryClient, Scoring


class MemoryOptions(BaseModel):
    model_config = STRICT

    name: str = Field(default="plan", description="of the tool")
    per_subtask: int | None = Field(
        default=None, ge=1, le=64, description="tools found for a query; none = the memory's own"
    )
    in_all: int | None = Field(
        default=None, ge=1, le=64, description="tools recommended for a plan; as per_subtask"
    )
    scoring: Scoring | None = Field(
        default=None, description="hybrid or graphrag; none = the memory's own"
    )
    text_weight: float | None = Field(
        default=None, ge=0, le=1, description="share of the words in a hybrid score; as scoring"
    )
    budget: int = Field(
        default=4096, ge=0, le=MOST_TOKENS, description="tokens of the answer; 0 = the recipe's"
    )
    timeout: float = Field(default=15.0, gt=0, description="seconds of a call of a found tool")
    again: bool = Field(default=False, description="a session may ask more than once")


class MemorySource(Source):
    where = "ADDRESS"
    description = "The tool `plan`, which finds tools that agents made before (`memory serve`)."
    Options = MemoryOptions

    @classmethod
    async def tools(cls, where: str, options: Any, sandbox: SandboxConfig) -> list[Tool]:
        if not where:
            raise StartError("memory: needs an address: memory:127.0.0.1:50071")
        from toolsvc.sources.memory.plan_tool import PlanTool

        return [PlanTool(MemoryClient(where), options, sandbox)]
