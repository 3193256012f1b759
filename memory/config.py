"""The recipe's [memory] table: where the memory is served, where it lies, and its rules."""

from __future__ import annotations

from pydantic import Field

from memory.graph.merging import Mode
from memory.types import DELTA, Prefer, Scoring, TextOf
from toolwright.recipe import MEMORY_ADDRESS, ProcessTable


class MemoryTable(ProcessTable):
    """Settings of `memory serve`, the tool memory. `toolwright run` starts it if the table exists
    and no server answers at the address."""

    address: str = MEMORY_ADDRESS
    """Address of `memory serve`. Port 0 is a free one, for `toolwright run`."""
    store: str = ""
    """A SQLite file, or `redis://HOST:PORT/DB#NAME` for several machines. Empty:
    `memory/memory.sqlite` in the run folder."""
    embedder: str = "hashing"
    """Embedding of texts: `"hashing"` (no weights), `"minilm"`, or a sentence-transformers folder.
    A memory keeps its first one."""
    text_of: TextOf = "description"
    """Words of a tool that are embedded and searched. A memory keeps its first choice."""
    delta: float = Field(default=DELTA, gt=0, le=1)
    """Cosine from which two tools count as one."""
    mode: Mode = "greedy"
    """Merging of new tools: into the nearest one, or over all pairs (`"union_find"`)."""
    prefer: Prefer = "first"
    """Code that a class of tools keeps: the first, or that with most merges or successes."""
    scoring: Scoring = "hybrid"
    """Ranking of tools that are found."""
    text_weight: float = Field(default=0.5, ge=0, le=1)
    """Share of the words in a hybrid score; the rest is the embeddings'."""
    per_subtask: int = Field(default=2, ge=1)
    """Tools found for one subtask."""
    in_all: int = Field(default=3, ge=1)
    """Tools found for one plan."""
    checks: str = ""
    """Address of a tool service with `create_and_execute`, which runs a new tool's first inputs
    again. Empty: no checks."""
    metrics_port: int = Field(default=0, ge=0, le=65_535)
    """Port of Prometheus metrics on loopback; 0 is off."""
