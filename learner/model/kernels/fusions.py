"""Megatron's fused kernels: which exist in this process, and which a policy uses.

Invariant: each fusion computes what the plain path does, up to rounding. `bench gpu kernels`
compares them on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from megatron.core.models.common.embeddings import rope_utils

from learner.config.weights import Fusions
from learner.errors import ModelError


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    name: str
    option: str
    """Name of Megatron's setting."""
    needs: str
    found: Callable[[], bool]
    """Whether its kernel exists in this process."""


def _fused_rope() -> bool:
    return rope_utils.fused_apply_rotary_pos_emb_thd is not None


def _fused_accumulation() -> bool:
    return find_spec("fused_weight_gradient_mlp_cuda") is not None


ROPE = Fusion(
    name="rotary positions",
    option="apply_rope_fusion",
    needs="TransformerEngine",
    found=_fused_rope,
)
FUSIONS = (
    ROPE,
    Fusion(
        name="activation",
        option="bias_activation_fusion",
        needs="torch",  # torch.compile joins its passes on CUDA
        found=lambda: True,
    ),
    Fusion(
        name="gradient accumulation",
        option="gradient_accumulation_fusion",
        needs="Apex with fused_weight_gradient_mlp_cuda",
        found=_fused_accumulation,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The fusions of a policy."""

    used: tuple[Fusion, ...] = ()
    left_out: tuple[tuple[Fusion, str], ...] = ()
    """Fusions with the reason why they are not used."""

    @property
    def options(self) -> dict[str, bool]:
        """Megatron's settings."""
        return {fusion.option: True for fusion in self.used}

    @property
    def summary(self) -> str:
        """What is used and why the rest is not, as one line."""
        used = ", ".join(fusion.name for fusion in self.used) or "nothing"
        without = [f"not {fusion.name} ({reason})" for fusion, reason in self.left_out]
        return "; ".join([f"fused: {used}", *without])


def select(setting: Fusions, *, images: bool) -> Selection:
    """The fusions under the recipe's setting.

    images: whether the policy reads images. Raises ModelError if the setting is "on" and a fusion
    cannot be used.
    """
    if setting == "off":
        return Selection()
    reasons = [(fusion, _reason(fusion, images=images)) for fusion in FUSIONS]
    left_out = tuple((fusion, reason) for fusion, reason in reasons if reason)
    if setting == "on" and left_out:
        fusion, reason = left_out[0]
        raise ModelError(
            f"fusions = 'on', and {fusion.name} cannot be fused ({reason}): set fusions = 'auto', "
            "which fuses what it can"
        )
    return Selection(
        used=tuple(fusion for fusion, reason in reasons if not reason), left_out=left_out
    )


def _reason(fusion: Fusion, *, images: bool) -> str:
    """Why it cannot be used; empty if it can."""
    if not fusion.found():
        return f"needs {fusion.needs}"
    if fusion is ROPE and images:
        return "not with images"
    return ""
