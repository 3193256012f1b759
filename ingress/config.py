"""The recipe's [ingress] table: where agents are served, and what of their requests counts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ingress.readers.registry import ReaderName
from toolwright.recipe import INGRESS_ADDRESS, ProcessTable

POLICY, ASIDE = "policy", "aside"
"""Names of models: calls of the first are trained, calls of the second are recorded alone."""


class IngressTable(ProcessTable):
    """Settings of `ingress serve RECIPE`."""

    address: str = Field(
        default=INGRESS_ADDRESS,
        description="of `ingress serve`, for agents; port 0 is a free one",
    )
    tools: ReaderName = Field(
        default="hermes",
        description="form of the policy's calls: hermes, qwen3_xml, llama_json",
    )
    aliases: dict[str, Literal["policy", "aside"]] = Field(
        default_factory=dict,
        description='other names of a model, as {"gpt-4o" = "policy"}; aside is never trained',
    )
    threads: int = Field(
        default=2, ge=1, le=64, description="that render and encode; each reads the tokenizer"
    )
    thinking: Literal["keep", "template"] = Field(
        default="keep",
        description="keep: recorded thoughts stay in the context; template: each request is "
        "rendered as a whole, as deployed, and may fork",
    )
    verify: float = Field(
        default=0.01, ge=0, le=1, description="share of calls that are rendered twice and compared"
    )
    metrics_port: int = Field(
        default=0,
        ge=0,
        le=65471,
        description="Prometheus on loopback; 0 = off; worker N of several adds N",
    )
    workers: int = Field(default=1, ge=1, le=64, description="processes that share the address")

    def of_worker(self, number: int) -> IngressTable:
        """The table of one of several workers, from 0."""
        port = self.metrics_port and self.metrics_port + number
        return self.model_copy(update={"metrics_port": port})
