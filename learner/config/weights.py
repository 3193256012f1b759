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
    """The optimizer and its schedule. Rates are peak values."""

    kind: Literal["adam", "muon"] = "adam"
    """Optimizer. `"muon"`: Muon on 2-D weights except embeddings, Adam on the rest."""
    lr: float = Field(default=1e-6, ge=0)
    """Adam's rate; 0 leaves the weights alone."""
    muon_lr: float = Field(default=0.02, ge=0)
    """Muon's rate."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Adam's first decay rate."""
    beta2: float = Field(default=0.95, ge=0, lt=1)
    """Adam's second decay rate."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Adam's weight decay; vectors are exempt."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps of linear warm-up, multiplied with the decay."""
    warmup_ratio: float = Field(default=0.0, ge=0, le=1)
    """Warm-up as a share of all steps, in place of `warmup_steps`."""
    decay: Literal["constant", "linear", "cosine"] = "constant"
    """Decay of the rates over all steps of the run."""
    min_fraction: float = Field(default=0.0, ge=0, le=1)
    """Share of the rates that is left at the end."""
    clip: float = Field(default=1.0, gt=0)
    """Largest global gradient norm."""

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
    """The optimizer with defaults for fine-tuning (MTR, section 4.1)."""

    lr: float = Field(default=1e-5, ge=0)
    """Adam's rate."""
    beta2: float = Field(default=0.98, ge=0, lt=1)
    """Adam's second decay rate."""
    warmup_ratio: float = Field(default=0.05, ge=0, le=1)
    """Warm-up as a share of all steps; `warmup_steps` goes before it."""
    decay: Literal["constant", "linear", "cosine"] = "cosine"
    """Decay of the rates over all steps of the run."""


class Parallel(Table):
    """Ranks of one copy of the model. The world size divided by tensor x pipeline x context is the
    data-parallel size."""

    tensor: int = Field(default=1, ge=1)
    """Ranks that each hold a part of every matrix."""
    pipeline: int = Field(default=1, ge=1)
    """Ranks that each hold a part of the layers; divides their number."""
    context: int = Field(default=1, ge=1)
    """Ranks that each have a part of every sequence, for long sequences. Not for policies that read
    images."""
    expert: int = Field(default=1, ge=1)
    """Ranks that share the experts of a mixture, taken from tensor or data ranks. With `tensor`
    above 1 a mixture needs this above 1 and `sequence = true`."""
    sequence: bool = False
    """Activations of norms are split over the tensor ranks. Not for policies that read images."""
    distributed_optimizer: bool = False
    """The optimizer's state is split over the data ranks, 12 of 18 bytes a parameter in bfloat16.
    """
    overlap: bool = False
    """Data ranks exchange gradients during the backward pass. Not timed on GPUs yet."""
    timeout_s: float = Field(default=600.0, gt=0)
    """Longest wait of a rank for the others, in seconds."""

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

    way: Literal["folder", "group"] = "folder"
    """Files in a folder, or a broadcast from memory to memory (`"group"`)."""
    bucket_mib: int = Field(default=512, ge=1)
    """Weights in one broadcast, in MiB. Learner and samplers need that much room."""
    address: str = Field(default="127.0.0.1", min_length=1)
    """Address of this machine for the samplers. Every peer there is trusted, so use a private
    network."""
    port: int = Field(default=0, ge=0, le=65535)
    """Port there; 0 is any free one."""
    timeout_s: float = Field(default=60.0, gt=0, le=600)
    """Longest time for one bucket to reach every sampler, in seconds."""

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
    """Low-rank adapters. They are trained, and the policy's own weights are frozen. Samplers get
    the merged weights, and `adapter` in a version's folder is the adapter alone, as PEFT reads it.
    In bfloat16 the merged weights are rounded, which may raise `gap_max`. A rate ten times that of
    full training is a usual start. Refused with Muon, and with tensor, pipeline or expert ranks
    above 1."""

    rank: int = Field(default=16, ge=1)
    """Rank of an adapter."""
    alpha: float = Field(default=32.0, gt=0, allow_inf_nan=False)
    """Scale: an adapter counts `alpha / rank`."""
    targets: tuple[Projection, ...] = Field(default=get_args(Projection), min_length=1)
    """Adapted matrices. A mixture of experts takes the first four alone."""

    synonyms: ClassVar = "lora"

    @model_validator(mode="after")
    def _each_once(self) -> Lora:
        if len(set(self.targets)) < len(self.targets):
            raise ValueError("a target is named twice: leave one out")
        return self
