"""Settings of a Hugging Face configuration that change the model's numbers.

Invariant: such a setting is computed as in transformers and the samplers, or refused by its name;
no setting is ignored. mbridge maps sizes, norms' epsilon and tied embeddings.

Frequencies of rotary positions come from transformers' own functions, so that linear, yarn and
llama3 scaling are exactly those of the folder. Scaling by the length of a sequence (dynamic,
longrope) is refused: the sampler sees another length than a training row. Llama's `pretraining_tp`
only describes how a product was split once: transformers and SGLang ignore it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from learner.errors import ModelError

SCALED = ("linear", "yarn", "llama3")
"""Kinds of rotary positions beside the plain ones."""


def check_settings(config: Any, folder: Path) -> None:
    """Raises ModelError with the first setting that this learner does not compute."""
    rope = config.rope_parameters
    window = getattr(config, "use_sliding_window", False)
    layers = set(
        getattr(config, "layer_types", None)
        or ["sliding_attention" if window else "full_attention"]
    )
    refused = {
        "hidden_act": (config.hidden_act, config.hidden_act == "silu", "'silu'"),
        "attention_bias": (
            getattr(config, "attention_bias", False),
            not getattr(config, "attention_bias", False),
            "false",
        ),
        "mlp_bias": (
            getattr(config, "mlp_bias", False),
            not getattr(config, "mlp_bias", False),
            "false",
        ),
        "layer_types / use_sliding_window": (
            sorted(layers),
            layers == {"full_attention"},
            "full attention in every layer",
        ),
        "rope_parameters.rope_type": (
            rope["rope_type"],
            rope["rope_type"] in ("default", *SCALED),
            f"'default', {', '.join(map(repr, SCALED))}",
        ),
        "rope_parameters.partial_rotary_factor": (
            rope.get("partial_rotary_factor", 1.0),
            rope.get("partial_rotary_factor", 1.0) == 1.0,
            "1.0",
        ),
        "decoder_sparse_step": (
            getattr(config, "decoder_sparse_step", 1),
            getattr(config, "decoder_sparse_step", 1) == 1,
            "1: experts in every layer",
        ),
        "mlp_only_layers": (
            getattr(config, "mlp_only_layers", []),
            not getattr(config, "mlp_only_layers", []),
            "[]: experts in every layer",
        ),
        "quantization_config": (
            "a quantised folder",
            getattr(config, "quantization_config", None) is None,
            "no quantisation: train the unquantised folder",
        ),
    }
    for name, (value, fits, wanted) in refused.items():
        if not fits:
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
