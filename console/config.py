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
    """A file or folder that the recipe needs, and the command that makes it."""

    name: Name = Field(description="what the view and its log are called")
    run: tuple[str, ...] = Field(
        min_length=1,
        description="the command, run in the recipe's folder; {seed}, {makes}, {run} (the run "
        "folder) are filled in; `python`, `engine`, `learner`, `toolsvc`, `memory`, `bench` are "
        "those beside toolwright",
    )
    makes: Path = Field(description="what it leaves; what is there is not made again")
    when_read: bool = Field(
        default=False,
        description="true: made only where a key reads it, such as one that a variation sets; "
        "false: also where none does, for a tool",
    )


class Service(Table):
    """A server beside sampler, engine and learner. It is started if `ready` does not answer."""

    name: Name = Field(description="tools.NAME, or `sampler`, whose port 0 it stands for")
    run: tuple[str, ...] = Field(
        min_length=1,
        description="as in `prepare`; {address} and {port} are those of `ready`",
    )
    ready: str = Field(
        description='"grpc:HOST:PORT" (grpc.health.v1) or a URL that answers 200; port 0: a free '
        "one, which tools.NAME.service of the same name gets"
    )
    start_s: float = Field(default=240.0, gt=0, description="longest start")

    @field_validator("ready")
    @classmethod
    def _ready_is_an_address(cls, ready: str) -> str:
        if not ready.startswith(("grpc:", "http://", "https://")) or port_of(ready) is None:
            raise ValueError(f'{ready!r}: write "grpc:HOST:PORT" or "http://HOST:PORT/PATH"')
        return ready


class SamplerStart(Table):
    """How samplers start where one of sampler.endpoints is on this machine and silent."""

    way: Literal["cpu", "gpu", "none"] = Field(
        default="cpu",
        description="this project's SGLang for the CPU, SGLang on a GPU, or nobody is started",
    )
    python: str = Field(
        default="", description="the Python of SGLang's environment; empty = .venv-sglang"
    )
    flags: tuple[str, ...] = Field(default=(), description="more flags of SGLang")
    start_s: float = Field(default=600.0, gt=0, description="longest start")


class Shown(Table):
    """A pair of suites for the report: NAME-sampled and NAME-greedy, or one suite NAME."""

    name: str
    title: str = Field(default="", description="in words; empty = the name")


class Words(Table):
    """What the report says in words; figures come from the run's files."""

    headline: str = Field(default="", description="what success is, for example Held-out success")
    lead: str = ""
    before: str = Field(default="", description="what the policy could before, and why")
    note: str = ""
    suites: tuple[Shown, ...] = Field(
        default=(), description="the first is the headline's; empty = all, in the recipe's order"
    )


BASE = "base"
RESERVED = (BASE, "console", "ablate.json", "ablate.html")
"""Names that stand for something else in a ladder's folder."""
LADDER = ("run.folder", "run.seed", "sft.seed", "console.ablations")
"""Keys that `toolwright ablate` says itself."""


class Ablation(Table):
    """One variation of the recipe, which `toolwright ablate` runs beside the recipe itself."""

    name: Name = Field(description="the folder of its runs, and its row")
    set: tuple[str, ...] = Field(
        min_length=1, description="what it changes, as --set takes it: TABLE.KEY=VALUE"
    )

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
    """What `toolwright run` is told."""

    threads: int = Field(
        default=1, ge=1, description="of sampler and learner each; small models want one"
    )
    ranks: int = Field(default=1, ge=1, description="of the learner, by learner.launch")
    sampler: SamplerStart = Field(default_factory=SamplerStart)
    services: tuple[Service, ...] = ()
    prepare: tuple[Prepared, ...] = ()
    report: Words = Field(default_factory=Words)
    track: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ("tensorboard",)
    ablations: tuple[Ablation, ...] = ()
    ablate_by: str = Field(
        default="", description="part of the reward that variations are compared by; empty = all"
    )

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
