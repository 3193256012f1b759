"""Configuration and tensor names in the folder of a policy that reads images.

Invariant: a published folder has the names of the folder at the start of training. Two schemes are
in use: that of the authors' folders (`model.layers`, `visual.blocks`), and that of transformers'
modules (`model.language_model.layers`, `model.visual.blocks`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open

from learner.errors import ModelError
from toolwright.recipe import TRAINED_VISION_ARCHITECTURES

_TEXT = "model."
"""Prefix of the decoder's tensors in a text policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Prefixes of the decoder's and the tower's tensors in a folder."""

    text: str
    tower: str

    def of_text(self, name: str) -> str:
        """The folder's name for a decoder's tensor that a text policy calls `name`."""
        return self.text + name.removeprefix(_TEXT) if name.startswith(_TEXT) else name


RELEASED = Names(text="model.", tower="visual.")
MODULES = Names(text="model.language_model.", tower="model.visual.")


def reads_images(config: Any) -> bool:
    """Whether a transformers configuration is of a policy with images that is trained here."""
    return config.model_type in TRAINED_VISION_ARCHITECTURES


def text_config(config: Any, folder: Path) -> Any:
    """The decoder's own configuration. Raises ModelError if its positions are not M-RoPE."""
    text = config.text_config
    text.tie_word_embeddings = config.tie_word_embeddings
    rope = text.rope_parameters
    half = text.hidden_size // text.num_attention_heads // 2
    sections = rope.get("mrope_section")
    if rope["rope_type"] != "default" or not sections or sum(sections) != half:
        raise ModelError(
            f"{folder}: rope_parameters = {dict(rope)} in its config.json: for a policy that reads "
            f"images the learner supports only M-RoPE with an mrope_section that adds up to {half}"
        )
    return text


def names_in(folder: Path) -> Names:
    """Prefixes of the folder's tensors."""
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as found:
            names = found.keys()
        if any(name.startswith(MODULES.text) for name in names):
            return MODULES
    return RELEASED
