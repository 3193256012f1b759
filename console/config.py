"""The recipe's table [console]: what `toolwright run` starts, and what its report says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from toolwright.recipe import ProcessTable, Table
from toolwright.recipe.assignments import AssignmentError, assign

Name = Annotated[str, Field(max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$")]
"""It becomes the name of a log file."""


def port_of(address: str) -> int | None:
    """The port of "HOST:PORT", "grpc:HOST:PORT" or a URL; None where none is said."""
    _, _, rest = address.rpartition("//")
    _, colon, port = rest.partition("/")[0].rpartition(":")
    return int(port) if colon and port.isdecimal() and int(port) < 65536 else None


class Prepared(Table):
    """A file or folder that the recipe reads, and the command that makes it if it is missing.
    `[render]` and `[sft]` run in the same way if `sft.data` or `policy.model` is their output. An
    unfinished result is moved to `PATH.unfinished`."""

    name: Name
    """Name in the view, and of the log: letters, digits, spaces and `. _ -`."""
    run: tuple[str, ...] = Field(min_length=1)
    """Command, run in the recipe's folder. `{seed}`, `{makes}` and `{run}` (the run folder) are
    filled in. `python` and Toolwright's commands are those of this installation."""
    makes: Path
    """File or folder that it leaves."""
    when_read: bool = False
    """Make it only if a key of the recipe reads it."""


class Service(Table):
    """Another server of the run. It is started beside the samplers if `ready` does not answer, and
    stopped with the run."""

    name: Name
    """Name in the view, and of the log. A service with the name of a tool stands for port 0 of
    `tools.NAME`, and `sampler` for port 0 of `sampler.endpoints`."""
    run: tuple[str, ...] = Field(min_length=1)
    """Command as in `prepare`, with `{address}` and `{port}` of `ready`."""
    ready: str
    """`"grpc:HOST:PORT"` (grpc.health.v1), or a URL that answers 200. Port 0 is a free one."""
    start_s: float = Field(default=240.0, gt=0)
    """Longest start, in seconds."""

    @field_validator("ready")
    @classmethod
    def _ready_is_an_address(cls, ready: str) -> str:
        if not ready.startswith(("grpc:", "http://", "https://")) or port_of(ready) is None:
            raise ValueError(f'{ready!r}: write "grpc:HOST:PORT" or "http://HOST:PORT/PATH"')
        return ready


class SamplerStart(Table):
    """How samplers start, for each of `sampler.endpoints` on this machine that does not answer. One
    that answers is used, and keeps running after the run."""

    way: Literal["cpu", "gpu", "none"] = "cpu"
    """SGLang on this machine's CPU, SGLang of the environment `python` on a GPU, or no start."""
    python: str = ""
    """Python of SGLang's environment. Empty: `TOOLWRIGHT_SGLANG`, else the one of `make setup` or
    `toolwright install-sampler`."""
    flags: tuple[str, ...] = ()
    """More flags of SGLang; later ones win. Those for `run.publish_adapters` are given already."""
    start_s: float = Field(default=600.0, gt=0)
    """Longest start, in seconds."""


class Shown(Table):
    """A suite of the report, or the pair NAME-sampled and NAME-greedy."""

    name: str
    """Name of the suite, without the ending of a pair."""
    title: str = ""
    """Title in words; empty is the name."""


class Words(Table):
    """The words of the report; its figures come from the run's files."""

    headline: str = ""
    """What success is, such as `Held-out success`."""
    lead: str = ""
    """A sentence or two below the headline."""
    before: str = ""
    """What the policy could do before, and why."""
    note: str = ""
    """Text below the figures."""
    suites: tuple[Shown, ...] = ()
    """Suites that the report compares, the headline's first. Empty: all."""


BASE = "base"
RESERVED = (BASE, "console", "ablate.json", "ablate.html")
"""Names that stand for something else in a ladder's folder."""
LADDER = ("run.folder", "run.seed", "sft.seed", "console.ablations")
"""Keys that `toolwright ablate` says itself."""


class Ablation(Table):
    """One variation, which `toolwright ablate` runs beside the recipe itself (`base`)."""

    name: Name
    """Folder of its runs, and its row: letters, digits, spaces and `. _ -`."""
    set: tuple[str, ...] = Field(min_length=1)
    """Assignments as `--set` takes them, such as `["learner.credit.weight=0.0"]`. Seed and folder
    are set by the command."""

    @field_validator("name")
    @classmethod
    def _name_is_free(cls, name: str) -> str:
        if name in RESERVED:
            raise ValueError(f"{name!r} has a meaning of its own in a ladder: choose another name")
        return name

    @field_validator("set")
    @classmethod
    def _set_is_assignments(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for text in given:
            try:
                assign({}, text)
            except AssignmentError as error:
                raise ValueError(str(error)) from error
            if (key := text.partition("=")[0]) in LADDER:
                raise ValueError(f"{key} is what `toolwright ablate` sets itself: leave it out")
        return given


OWN = ("sampler", "memory", "engine", "learner", "render", "sft", "check")
"""What `toolwright run` starts by itself."""


class ConsoleTable(ProcessTable):
    """What `toolwright run` starts beside engine and learner, and what its report says."""

    threads: int = Field(default=1, ge=1)
    """Threads of the sampler and of the learner each; small models want one."""
    ranks: int = Field(default=1, ge=1)
    """Processes of the learner, one a GPU."""
    sampler: SamplerStart = Field(default_factory=SamplerStart)
    """How samplers start."""
    services: tuple[Service, ...] = ()
    """Other servers."""
    prepare: tuple[Prepared, ...] = ()
    """Files that are made first."""
    report: Words = Field(default_factory=Words)
    """Words of the report."""
    track: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ("tensorboard",)
    """Destinations of curves during the run: `<run.folder>/tensorboard`, W&B, MLflow."""
    ablations: tuple[Ablation, ...] = ()
    """Variations of the recipe."""
    ablate_by: str = ""
    """Part of the reward that `toolwright ablate` compares, such as `correct`, for variations that
    change the reward. Empty: the whole reward."""

    @model_validator(mode="after")
    def _names_differ(self) -> ConsoleTable:
        names = [*OWN, *(one.name for one in self.prepare), *(one.name for one in self.services)]
        twice = sorted({name for name in names if names.count(name) > 1} - {"sampler"})
        if twice:
            raise ValueError(f"two processes are named {twice[0]!r}: their logs would be one")
        variations = [one.name for one in self.ablations]
        again = sorted({name for name in variations if variations.count(name) > 1})
        if again:
            raise ValueError(f"two ablations are named {again[0]!r}: their folders would be one")
        return self
