"""The vision tower, and its output in the decoder's embeddings.

The tower is transformers' own module, the reference for the samplers too. It is `network.visual`,
on the pipeline stage of the embedding, whole on every rank.

Importing this module imports transformers' model code, which text policies do not need.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VisionTransformerPretrainedModel,
)

from learner.errors import ModelError
from learner.vision.folder import Names
from learner.vision.pixels import Pixels
from learner.vision.placed import PlacedImage


def new_tower(config: Any, dtype: torch.dtype, device: torch.device) -> torch.nn.Module:
    """A tower for a transformers configuration, with random weights."""
    tower: Any = Qwen2_5_VisionTransformerPretrainedModel._from_config(
        config.vision_config, attn_implementation="sdpa", dtype=dtype
    ).to(device)
    rotary = tower.rotary_pos_emb
    for name in ("inv_freq", "original_inv_freq"):
        # Not buffers, so that they stay float32 when the network becomes bfloat16.
        object.__setattr__(rotary, name, rotary._buffers.pop(name))
    return tower  # type: ignore[no-any-return]


def load_tower(tower: torch.nn.Module, folder: Path, names: Names) -> None:
    """Copies the folder's weights into the tower. Raises ModelError if they do not fit."""
    missing = {names.tower + name: value for name, value in tower.state_dict().items()}
    with torch.no_grad():
        for file in sorted(folder.glob("*.safetensors")):
            with safe_open(file, framework="pt") as found:
                for name in missing.keys() & set(found.keys()):
                    weight = found.get_tensor(name)
                    if weight.shape != missing[name].shape:
                        raise ModelError(
                            f"{name} of {folder} has the shape {list(weight.shape)}, its "
                            f"config.json says {list(missing[name].shape)}: restore the folder"
                        )
                    missing.pop(name).copy_(weight)
    if missing:
        raise ModelError(f"{folder} lacks the weight {min(missing)} of its config.json: restore it")


class ImageEmbedding:
    """Replaces the word embedding's forward.

    Set `shown` before a forward of the network, in the order of the tokens. The embeddings at the
    placeholders are then the tower's output. pixels: the samplers' image processor.
    """

    def __init__(self, embedding: Any, tower: Any, pixels: Pixels) -> None:
        self.shown: Sequence[PlacedImage] = ()
        self._tower = tower
        self.pixels = pixels
        self._words = embedding.word_embeddings.forward
        embedding.word_embeddings.forward = self

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        """[1, s] ids -> [1, s, h]"""
        words: torch.Tensor = self._words(tokens)
        if not self.shown:
            return words
        pixels, grids = self.pixels([one.image for one in self.shown])
        seen = self._tower(pixels.to(tokens.device), grid_thw=grids.to(tokens.device)).pooler_output
        at = torch.cat([torch.arange(one.start, one.end) for one in self.shown])
        return words.index_copy(1, at.to(words.device), seen.unsqueeze(0).to(words.dtype))
