"""The recipe's [ingress] table: where agents are served, and what of their requests counts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ingress.readers.registry import ReaderName
from toolwright.recipe import INGRESS_ADDRESS, ProcessTable

POLICY, ASIDE = "policy", "aside"
"""Names of models: calls of the first are trained, calls of the second are recorded alone."""


class IngressTable(ProcessTable):
    """Settings of `ingress serve`, where outside agents call the policy. `toolwright run` starts it
    if the table exists, even empty."""

    address: str = INGRESS_ADDRESS
    """Host and port for agents; `--listen` replaces it. Port 0 is a free one."""
    tools: ReaderName = "hermes"
    """Form of the policy's tool calls."""
    aliases: dict[str, Literal["policy", "aside"]] = Field(default_factory=dict)
    """Other names of a model, such as `{ "gpt-4o" = "policy" }`. Calls of `"aside"` are recorded
    and never trained."""
    threads: int = Field(default=2, ge=1, le=64)
    """Threads that render and encode, each with its own tokenizer."""
    thinking: Literal["keep", "template"] = "keep"
    """`"keep"`: recorded thoughts stay in the context. `"template"`: each request is rendered as a
    whole, as deployed, and forks where its ids differ."""
    verify: float = Field(default=0.01, ge=0, le=1)
    """Share of calls that are rendered a second time as a whole and compared with the record."""
    metrics_port: int = Field(default=0, ge=0, le=65471)
    """Port of Prometheus metrics on loopback; 0 is off. Worker N adds N."""
    workers: int = Field(default=1, ge=1, le=64)
    """Processes that share the address; `--workers` replaces it."""

    def of_worker(self, number: int) -> IngressTable:
        """The table of one of several workers, from 0."""
        port = self.metrics_port and self.metrics_port + number
        return self.model_copy(update={"metrics_port": port})
