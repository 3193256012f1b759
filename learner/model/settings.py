"""Settings of a Hugging Face configuration that change the model's numbers.

Invariant: such a setting is computed as in transformers and the samplers, or refused by its name;
no setting is ignored. mbridge maps sizes, norms' epsilon and tied embeddings.

Frequencies of rotary positions come from transformers' own functions. So linear, yarn and llama3
scaling are exactly those of the folder. Scaling by the length of a sequence (dynamic, longrope) is
refused: the sampler sees another length than a training row. Llama's `pretraining_tp` only
describes how a product was split once: transformers and SGLang ignore it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from learner.errors import ModelError

SCALED = ("linear", "yarn", "llama3")
"""Kinds of rotary positions beside the plain ones."""
OFF = (False, None)
"""Values of a setting that is switched off."""


def check_settings(config: Any, folder: Path) -> None:
    """Raises ModelError with the first setting that this learner does not compute."""
    rope = config.rope_parameters
    window = getattr(config, "use_sliding_window", False)
    layers = getattr(config, "layer_types", None) or [
        "sliding_attention" if window else "full_attention"
    ]
    found: dict[str, tuple[Any, tuple[Any, ...], str]] = {
        "hidden_act": (config.hidden_act, ("silu",), "'silu'"),
        "attention_bias": (getattr(config, "attention_bias", False), OFF, "false"),
        "mlp_bias": (getattr(config, "mlp_bias", False), OFF, "false"),
        "layer_types / use_sliding_window": (
            sorted(set(layers)),
            (["full_attention"],),
            "full attention in every layer",
        ),
        "rope_parameters.rope_type": (
            rope["rope_type"],
            ("default", *SCALED),
            f"'default', {', '.join(map(repr, SCALED))}",
        ),
        "rope_parameters.partial_rotary_factor": (
            rope.get("partial_rotary_factor", 1.0),
            (1.0,),
            "1.0",
        ),
        "decoder_sparse_step": (
            getattr(config, "decoder_sparse_step", 1),
            (1,),
            "1: experts in every layer",
        ),
        "mlp_only_layers": (
            getattr(config, "mlp_only_layers", None) or [],
            ([],),
            "[]: experts in every layer",
        ),
        "quantization_config": (
            None if getattr(config, "quantization_config", None) is None else "set",
            OFF,
            "no quantisation: train the unquantised folder",
        ),
    }
    for name, (value, supported, wanted) in found.items():
        if value not in supported:
            raise ModelError(
                f"{folder}: {name} = {value} in its config.json is not supported, and training "
                f"would differ from the samplers; the learner supports {wanted}"
            )


def frequencies(config: Any) -> tuple[torch.Tensor, float] | None:
    """([head size / 2] inverse frequencies, factor on queries and keys); None without scaling."""
    kind = config.rope_parameters["rope_type"]
    if kind == "default":
        return None
    inverse, factor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    return inverse, float(factor)
