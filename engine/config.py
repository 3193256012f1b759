"""The engine's recipe tables: [engine] with its evaluation lane, and [render]."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from toolwright.recipe import Table


class Suite(Table):
    """One evaluation: the first `n` tasks of a source, one trajectory each."""

    name: str
    source: str = Field(description="like task.source")
    n: int = Field(ge=1)
    temperature: float = Field(default=0.0, ge=0)
    when: Literal["every", "ends", "last"] = Field(
        default="every",
        description="every `evaluation.every` versions, first and last, or last only",
    )
    seed: int = 0
    withhold_observations: bool = Field(
        default=False, description="tools run but their answers come back empty: an ablation"
    )


class Evaluation(Table):
    """The evaluation lane; it takes no part in the capacity formula."""

    every: int = Field(default=0, ge=0, description="versions between evaluations; 0 = ends only")
    max_concurrent: int = Field(default=128, ge=1)
    samples: int = Field(default=3, ge=0, description="trajectories a suite left as text")
    suites: tuple[Suite, ...] = ()


class EngineTable(Table):
    """What `engine serve` is told."""

    listen: str = Field(default="", description="empty = run.engine")
    max_concurrent: int = Field(default=128, ge=1, description="trajectories in flight")
    patience_s: float = Field(
        default=300.0, ge=0, description="attempts at one trajectory while infrastructure fails it"
    )
    max_bad_rows: int = Field(
        default=100, ge=0, description="rows of the task source that are dropped; one more ends it"
    )
    metrics_port: int = Field(default=0, ge=0, description="Prometheus on loopback; 0 = off")
    drain_s: float = Field(default=30.0, ge=0, description="grace of SIGTERM")
    observation_keep: Literal["head", "middle", "tail"] = "middle"
    history: Literal["open", "all"] = Field(
        default="open",
        description="the journal keeps what is not acknowledged, or all: logs, records, images",
    )
    evaluation: Evaluation = Field(default_factory=Evaluation)


class RenderTable(Table):
    """What `engine render` turns into a trajectories file for `learner sft`."""

    model: Path | None = Field(
        default=None, description="folder of tokenizer and template; policy.model"
    )
    conversations: Path = Field(description='JSONL: {"messages": [{"role", "content"}, ...]}')
    output: Path
    ask_tools: bool = Field(
        default=False,
        description="ask the services under [tools] what prompts that show tools have to show",
    )
