"""Keys that [learner] and [sft] share: optimizer, ranks, adapters, precision, checkpoints."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from learner.config.weights import Fusions, Lora, Optimizer, Parallel, Recompute
from toolwright.recipe import ProcessTable, Shared


class TrainingTable(ProcessTable):
    """Keys of both commands that train."""

    optimizer: Optimizer = Field(default_factory=Optimizer)
    """The optimizer."""
    parallel: Parallel = Field(default_factory=Parallel)
    """Ranks of one copy of the model."""
    lora: Lora | None = None
    """Train adapters. None: train every weight."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Type of the weights; `"bfloat16"` keeps gradients in float32."""
    recompute: Recompute = "none"
    """Activations that the backward pass computes again: the cheap ones (`"selective"`), or every
    layer."""
    fusions: Fusions = "off"
    """Fused kernels: those that exist (`"auto"`), or all, which ends the learner if one is missing
    (`"on"`)."""
    tokens_per_microbatch: int = Field(default=4096, ge=1)
    """Tokens in one forward pass; at least one sequence."""
    checkpoint_every: int = Field(default=10, ge=1)
    """Steps between checkpoints. Groups are acknowledged, and their bytes deleted, only then."""
    keep_checkpoints: int = Field(default=2, ge=1)
    """Number of checkpoints that stay on disk."""
    background_checkpoints: bool = False
    """Write a checkpoint while training continues, from a copy in host memory (12 bytes a parameter
    in float32)."""

    @property
    def frozen_models(self) -> int:
        """Number of whole frozen models beside the policy."""
        return 0

    def longest_row(self, shared: Shared) -> tuple[int, str]:
        """(tokens of the longest row that the recipe allows, the key that limits it)"""
        raise NotImplementedError

    @property
    def _weights(self) -> str:
        """The optimizer and the adapters, for the line in force."""
        adapters = f", adapters of rank {self.lora.rank} alone" if self.lora is not None else ""
        return f"{self.optimizer.summary}{adapters}"

    @model_validator(mode="after")
    def _whole_matrices(self) -> Self:
        parallel, lora, muon = self.parallel, self.lora is not None, self.optimizer.kind == "muon"
        conflicts = (
            (lora and parallel.tensor > 1, "lora adapts whole matrices: set parallel.tensor = 1"),
            (
                lora and parallel.pipeline > 1,
                "lora adapts all layers on one stage: set parallel.pipeline = 1",
            ),
            (
                lora and parallel.expert > 1,
                "lora keeps whole frozen weights on a rank: set parallel.expert = 1",
            ),
            (lora and muon, "Muon does not fit lora's two factors: set optimizer.kind = 'adam'"),
            (
                muon and parallel.tensor > 1,
                "optimizer.kind = 'muon' orthogonalises whole matrices: set parallel.tensor = 1",
            ),
            (
                muon and parallel.expert > 1,
                "optimizer.kind = 'muon' moves weights that every rank has: set parallel.expert = "
                "1",
            ),
            (
                muon and parallel.distributed_optimizer,
                "optimizer.kind = 'muon' moves whole matrices: set parallel.distributed_optimizer "
                "= false",
            ),
        )
        if sentence := next((sentence for conflict, sentence in conflicts if conflict), ""):
            raise ValueError(sentence)
        return self
