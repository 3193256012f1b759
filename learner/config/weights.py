"""Tables of the weights: optimizer, ranks, adapters, publishing."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import ClassVar, Literal, get_args
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from toolwright.recipe import Table
from toolwright.recipe.models.table import Either, OfKind

Recompute = Literal["none", "selective", "full"]
Fusions = Literal["auto", "on", "off"]
Vision = Literal["frozen", "trained"]


class Optimizer(Table):
    """The optimizer; rates are peak values of the schedule."""

    kind: Literal["adam", "muon"] = Field(
        default="adam", description="muon: Muon on 2-D weights, Adam on the rest"
    )
    lr: float = Field(
        default=1e-6, ge=0, description="Adam's peak rate; 0 leaves the weights alone"
    )
    muon_lr: float = Field(default=0.02, ge=0, description="Muon's peak rate")
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0, description="Adam's; vectors are exempt")
    warmup_steps: int = Field(default=0, ge=0)
    warmup_ratio: float = Field(
        default=0.0, ge=0, le=1, description="warm-up as a share of all steps"
    )
    decay: Literal["constant", "linear", "cosine"] = "constant"
    min_fraction: float = Field(default=0.0, ge=0, le=1, description="share of the peak at the end")
    clip: float = Field(default=1.0, gt=0, description="largest global gradient norm")

    rules: ClassVar = (Either("warmup_steps", "warmup_ratio"), OfKind("muon_lr"))
    synonyms: ClassVar = "optimizer"

    @property
    def summary(self) -> str:
        muon = f"muon {self.muon_lr:g} and " if self.kind == "muon" else ""
        warm = f", warm-up {self.warmup_steps} steps" if self.warmup_steps else ""
        if self.warmup_ratio and not self.warmup_steps:
            warm = f", warm-up {self.warmup_ratio:.3g} of all steps"
        least = f" to {self.min_fraction:g}" if self.decay != "constant" else ""
        return f"{muon}adam {self.lr:g}{warm}, {self.decay}{least}"

    @model_validator(mode="after")
    def _one_warmup(self) -> Optimizer:
        named = {"warmup_steps", "warmup_ratio"} <= self.model_fields_set
        if named and self.warmup_steps and self.warmup_ratio:
            raise ValueError(
                f"warmup_steps = {self.warmup_steps} and warmup_ratio = {self.warmup_ratio:g}: "
                "set one of them to 0"
            )
        return self


class SftOptimizer(Optimizer):
    """The optimizer with defaults for fine-tuning: warm-up, then cosine (MTR, section 4.1)."""

    lr: float = Field(default=1e-5, ge=0, description="Adam's peak rate")
    beta2: float = Field(default=0.98, ge=0, lt=1)
    warmup_ratio: float = Field(
        default=0.05, ge=0, le=1, description="of all steps; warmup_steps goes before it"
    )
    decay: Literal["constant", "linear", "cosine"] = "cosine"


class Parallel(Table):
    """Ranks of one model copy. The world size over these ranks is the data-parallel size."""

    tensor: int = Field(default=1, ge=1)
    pipeline: int = Field(default=1, ge=1, description="stages of the layers")
    context: int = Field(default=1, ge=1, description="parts of every sequence")
    expert: int = Field(
        default=1, ge=1, description="ranks that share the experts; also tensor and data ranks"
    )
    sequence: bool = Field(
        default=False, description="norms' activations are split over the tensor-parallel ranks"
    )
    distributed_optimizer: bool = Field(
        default=False, description="optimizer state split over data ranks"
    )
    overlap: bool = Field(
        default=False, description="data ranks exchange gradients during the backward pass"
    )
    timeout_s: float = Field(
        default=600.0, gt=0, description="longest wait of a rank for the others, in seconds"
    )

    synonyms: ClassVar = "parallel"

    @model_validator(mode="after")
    def _sequence_of_tensor(self) -> Parallel:
        if self.sequence and self.tensor == 1:
            raise ValueError(
                "parallel.sequence splits activations over tensor-parallel ranks: set "
                "parallel.tensor above 1, or parallel.sequence = false"
            )
        return self


class Publish(Table):
    """The way of new weights to the samplers."""

    way: Literal["folder", "group"] = Field(
        default="folder",
        description="group: by broadcast from memory to memory, the folder follows",
    )
    bucket_mib: int = Field(default=512, ge=1, description="weights in one broadcast, MiB")
    address: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="this machine's address for the samplers",
    )
    port: int = Field(default=0, ge=0, le=65535, description="0 = any free port")
    timeout_s: float = Field(
        default=60.0, gt=0, le=600, description="for one bucket to reach all samplers"
    )

    def beyond(self, endpoints: Sequence[str]) -> str | None:
        """Why samplers cannot reach the first rank, one sentence; None if they may.

        endpoints: URLs of the samplers.
        """
        if self.way == "folder" or not _is_loopback(self.address):
            return None
        for url in endpoints:
            host = urlsplit(url).hostname or ""
            if not _is_loopback(host):
                return (
                    f"the sampler at {url} cannot reach this learner at {self.address}: set "
                    "learner.publish.address to this machine's address in the samplers' network, "
                    'or learner.publish.way = "folder"'
                )
        return None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


Projection = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class Lora(Table):
    """Low-rank adapters. They are trained; the policy's own weights are frozen."""

    rank: int = Field(default=16, ge=1, description="rank of an adapter")
    alpha: float = Field(
        default=32.0, gt=0, allow_inf_nan=False, description="an adapter is scaled by alpha / rank"
    )
    targets: tuple[Projection, ...] = Field(
        default=get_args(Projection), min_length=1, description="adapted matrices, by PEFT's names"
    )

    synonyms: ClassVar = "lora"

    @model_validator(mode="after")
    def _each_once(self) -> Lora:
        if len(set(self.targets)) < len(self.targets):
            raise ValueError("a target is named twice: leave one out")
        return self
