"""Options of the tool `plan`."""

from __future__ import annotations

from pydantic import BaseModel, Field

from toolsvc.plugin.results import MOST_TOKENS
from toolsvc.plugin.tool import STRICT
from toolsvc.sources.memory.client import Scoring


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
