"""The engine's recipe tables: [engine] with its evaluation lane, and [render]."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from toolwright.recipe import Limits, ProcessTable, Table
from toolwright.recipe.models.table import ON, ReadIf

DEFAULT_CONCURRENT = 128
"""Training trajectories in flight of a recipe that does not set it."""


class Suite(Table):
    """One evaluation: `n` rows of a source, one trajectory each, with the protocol, tools and
    reward of its task."""

    name: str = Field(max_length=100)
    """Name of the suite, which also names a file."""
    task: str = ""
    """Task of its questions, if the recipe has [tasks.NAME]."""
    source: str
    """Source as in `task.source`. A file keeps its order."""
    n: int = Field(ge=1)
    """Number of rows. An unusable row is counted and not replaced."""
    data_source: str = ""
    """Use only rows of this `data_source`. Empty: all rows."""
    subset: Literal["first", "random"] = "first"
    """Which `n` rows of the file: the first, or a draw by `subset_seed`."""
    subset_seed: int = 0
    """Seed of that draw."""
    when: Literal["every", "ends", "last"] = "every"
    """`"every"`: at version 0, every `engine.evaluation.every` versions and at the last. `"ends"`:
    at version 0 and the last. `"last"`: at the last."""
    seed: int = 0
    """Seed that a function source gets."""
    temperature: float = Field(default=0.0, ge=0)
    """Temperature of sampling; 0 is greedy."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """As in [sampler], whose value counts if it is missing."""
    top_k: int | None = None
    """As `top_p`."""
    min_p: float | None = Field(default=None, ge=0, le=1)
    """As `top_p`."""
    repetition_penalty: float | None = Field(default=None, gt=0)
    """As `top_p`."""
    max_new_tokens: int | None = Field(default=None, ge=1)
    """Length of one action, if the limits allow more."""
    sampling_seed: int | None = Field(default=None, ge=0, lt=1 << 31)
    """Seed of the first row; row i has i more. It needs deterministic servers."""
    limits: Limits | None = None
    """Limits that replace their namesakes in [task.limits], such as `{ turns = 8 }`."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """As `task.metadata`. `{version}` names the evaluated weights, `{iteration}` the run's
    iteration."""
    withhold_observations: bool = False
    """Tools run, and the policy sees empty answers: an ablation."""

    @field_validator("name")
    @classmethod
    def _name_is_a_file_name(cls, name: str) -> str:
        if re.fullmatch(r"\w[\w .+-]*", name) is None:
            raise ValueError(
                f"{name!r} cannot name a file: use letters, digits, spaces and . + - _"
            )
        return name


class Evaluation(Table):
    """Evaluations during training, which run beside it."""

    every: int = Field(default=0, ge=0)
    """Weight versions between evaluations; 0 is at version 0 and the last only."""
    max_concurrent: int = Field(default=128, ge=1)
    """Evaluation trajectories in flight or being scored, over all suites."""
    samples: int = Field(default=3, ge=0)
    """Trajectories of each suite that `samples.jsonl` keeps as text."""
    keep: int = Field(default=0, ge=0)
    """Evaluation trajectories that are kept for a program that leases them. 0 keeps none."""
    publish_waits_s: float = Field(default=600.0, ge=0)
    """Longest wait of a publish for an evaluation, in seconds. Then no further row begins."""
    suites: tuple[Suite, ...] = ()
    """The suites."""

    @model_validator(mode="after")
    def _names_differ(self) -> Evaluation:
        names = [suite.name for suite in self.suites]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two suites are named {twice[0]!r}: give each a name of its own")
        return self


class EngineTable(ProcessTable):
    """Settings of `engine serve`."""

    listen: str = ""
    """Address that the engine listens at; empty is `run.engine`. All but loopback and `unix:/path`
    need a token."""
    max_concurrent: Annotated[int, Field(ge=1)] | Literal["auto"] = DEFAULT_CONCURRENT
    """Training trajectories in flight, with those that wait to become branches. `"auto"` keeps as
    many in flight as the samplers' prefix caches carry."""
    patience_s: float = Field(default=300.0, ge=0)
    """Time of new attempts at one trajectory while infrastructure fails it, in seconds. At least
    three are made."""
    max_bad_rows: int = Field(default=100, ge=0)
    """Rows of the task source that may be unusable; one more ends the run."""
    metrics_port: int = Field(default=0, ge=0)
    """Port of Prometheus metrics on loopback; 0 is off."""
    drain_s: float = Field(default=30.0, ge=0)
    """Time for trajectories in flight after SIGTERM, in seconds."""
    observation_keep: Literal["head", "middle", "tail"] = "middle"
    """Part of a long observation that stays: its beginning, both ends, or its end."""
    history: Literal["open", "all"] = "open"
    """What the journal keeps: groups that are not acknowledged, or everything, for `engine replay`
    and `engine inspect`."""
    evaluation: Evaluation = Field(default_factory=Evaluation)
    """Evaluations during training."""

    @property
    def fixed_places(self) -> int:
        """Trajectories in flight of a program that does not adapt."""
        adapts = self.max_concurrent == "auto"
        return DEFAULT_CONCURRENT if adapts else int(self.max_concurrent)

    synonyms: ClassVar = "engine"
    rules: ClassVar = tuple(
        ReadIf(f"engine.evaluation.{key}", ({"engine.evaluation.suites": ON},))
        for key in ("every", "max_concurrent", "samples", "keep", "publish_waits_s")
    )


class RenderTable(ProcessTable):
    """Settings of `engine render`, which writes the file of conversations for `learner sft`."""

    model: Path | None = None
    """Folder of tokenizer and chat template. None: `policy.model`."""
    conversations: Path | dict[str, Path]
    """JSONL of `{"messages": [...]}`, or of another layout. With [tasks.NAME] a file of each: `{
    math = "math.jsonl" }`."""
    output: Path
    """File of trajectories that it writes."""
    ask_tools: bool = False
    """Ask the services under [tools] for the tools that prompts show, for rows without their own.
    """

    max_bad_rows: int = Field(default=0, ge=0)
    """Lines that may be unusable; one more ends the command."""

    @property
    def files(self) -> dict[str, Path]:
        """The file of conversations of each task; the key is "" in a recipe with one task."""
        given = self.conversations
        return given if isinstance(given, dict) else {"": given}
