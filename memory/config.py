"""The recipe's [memory] table: where the memory is served, where it lies, and its rules."""

from __future__ import annotations

from pydantic import Field

from memory.graph.merging import Mode
from memory.types import DELTA, Prefer, Scoring, TextOf
from toolwright.recipe import MEMORY_ADDRESS, ProcessTable


class MemoryTable(ProcessTable):
    """Settings of `memory serve RECIPE`."""

    address: str = Field(
        default=MEMORY_ADDRESS,
        description="of `memory serve`; port 0 is a free one, chosen by `toolwright run`",
    )
    store: str = Field(
        default="",
        description="a file (SQLite), or redis://HOST:PORT/DB#NAME; empty = "
        "memory/memory.sqlite in run.folder",
    )
    embedder: str = Field(
        default="hashing",
        description="hashing (no weights), minilm, or a sentence-transformers folder",
    )
    text_of: TextOf = Field(
        default="description",
        description='words of a tool that are embedded and searched: "description", or '
        '"name and description"; a memory keeps those that it was begun with',
    )
    delta: float = Field(
        default=DELTA, gt=0, le=1, description="cosine from which on two tools are one"
    )
    mode: Mode = Field(default="greedy", description="how new tools are merged")
    prefer: Prefer = Field(
        default="first",
        description="whose code a node keeps: first, higher_support, or higher_success",
    )
    scoring: Scoring = Field(default="hybrid", description="how tools are found")
    text_weight: float = Field(
        default=0.5, ge=0, le=1, description="share of the words in a hybrid score"
    )
    per_subtask: int = Field(default=2, ge=1, description="tools found for a subtask")
    in_all: int = Field(default=3, ge=1, description="tools found for a plan")
    checks: str = Field(
        default="",
        description="address of a tool service with create_and_execute, which runs a new tool's "
        "first inputs again, and merge_check; empty = none",
    )
    metrics_port: int = Field(
        default=0, ge=0, le=65_535, description="Prometheus on loopback; 0 = off"
    )
