"""The engine's recipe tables: [engine] with its evaluation lane, and [render]."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from toolwright.recipe import Limits, ProcessTable, Table
from toolwright.recipe.models.table import ON, ReadIf


class Suite(Table):
    """One evaluation: `n` rows of a source, one trajectory each."""

    name: str = Field(max_length=100, description="one or more words; it becomes a file name")
    task: str = Field(
        default="", description="which of [tasks.*] its questions belong to; there alone"
    )
    source: str = Field(description="like task.source")
    n: int = Field(ge=1)
    data_source: str = Field(
        default="", description="rows of this data_source alone, of a file with several"
    )
    subset: Literal["first", "random"] = Field(
        default="first", description="which n of these rows; random: of a file, by subset_seed"
    )
    subset_seed: int = 0
    when: Literal["every", "ends", "last"] = Field(
        default="every",
        description="every `evaluation.every` versions, first and last, or last only",
    )
    seed: int = Field(default=0, description="handed to a function source")
    temperature: float = Field(default=0.0, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1, description="none = as in [sampler]")
    top_k: int | None = None
    min_p: float | None = Field(default=None, ge=0, le=1)
    repetition_penalty: float | None = Field(default=None, gt=0)
    max_new_tokens: int | None = Field(default=None, ge=1, description="of one action")
    sampling_seed: int | None = Field(
        default=None, ge=0, lt=1 << 31, description="of the first row; row i has i more"
    )
    limits: Limits | None = Field(
        default=None, description="those that are named replace their namesakes in [task.limits]"
    )
    metadata: dict[str, Any] = Field(
        default_factory=dict,
        description="laid over the metadata of every task, for its tools; in texts {version} "
        "names the weights, {iteration} the iteration of the run",
    )
    withhold_observations: bool = Field(
        default=False, description="tools run but their answers come back empty: an ablation"
    )

    @field_validator("name")
    @classmethod
    def _name_is_a_file_name(cls, name: str) -> str:
        if re.fullmatch(r"\w[\w .+-]*", name) is None:
            raise ValueError(
                f"{name!r} cannot name a file: use letters, digits, spaces and . + - _"
            )
        return name


class Evaluation(Table):
    """The evaluation lane, which is not part of the capacity formula."""

    every: int = Field(default=0, ge=0, description="versions between evaluations; 0 = ends only")
    max_concurrent: int = Field(default=128, ge=1)
    samples: int = Field(default=3, ge=0, description="trajectories a suite left as text")
    keep: int = Field(
        default=0, ge=0, description="trajectories for a reader of the evaluation lane; 0 = none"
    )
    publish_waits_s: float = Field(
        default=600.0, ge=0, description="for one evaluation, which then begins no more rows"
    )
    suites: tuple[Suite, ...] = ()

    @model_validator(mode="after")
    def _names_differ(self) -> Evaluation:
        names = [suite.name for suite in self.suites]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two suites are named {twice[0]!r}: give each a name of its own")
        return self


class EngineTable(ProcessTable):
    """[engine]: the settings of `engine serve`."""

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

    synonyms: ClassVar = "engine"
    rules: ClassVar = tuple(
        ReadIf(f"engine.evaluation.{key}", ({"engine.evaluation.suites": ON},))
        for key in ("every", "max_concurrent", "samples", "keep", "publish_waits_s")
    )


class RenderTable(ProcessTable):
    """[render]: the settings of `engine render`, which makes a trajectories file for `learner
    sft`."""

    model: Path | None = Field(
        default=None, description="folder of tokenizer and template; policy.model"
    )
    conversations: Path | dict[str, Path] = Field(
        description='JSONL: {"messages": [{"role", "content"}, ...]}, with "tools" or without; or '
        "rows of the Hermes layout or of the Responses API; with several tasks a file of each: "
        "{ NAME = FILE }"
    )
    output: Path
    ask_tools: bool = Field(
        default=False,
        description="take the tools that prompts show from the services under [tools], for rows "
        "without tools of their own",
    )

    max_bad_rows: int = Field(
        default=0,
        ge=0,
        description="lines that cannot be used and are passed over; one more ends it",
    )

    @property
    def files(self) -> dict[str, Path]:
        """The file of conversations of each task; the key is "" in a recipe with one task."""
        given = self.conversations
        return given if isinstance(given, dict) else {"": given}
