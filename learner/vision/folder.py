"""What a policy folder says of a policy that reads images, and what its tensors are called there.

Invariant: what is published has the names of the folder that training began with. Two ways of
naming are in use: that of the folders which the authors released (`model.layers`, `visual.blocks`),
and that of transformers' modules (`model.language_model.layers`, `model.visual.blocks`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open

from learner.errors import ModelError
from toolwright.recipe import TRAINED_VISION_ARCHITECTURES

_TEXT = "model."
"""What the decoder's tensors begin with where there is no tower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What the names of a folder begin with: the decoder's and the tower's."""

    text: str
    tower: str

    def of_text(self, name: str) -> str:
        """The folder's name for a decoder's tensor that a text policy calls `name`."""
        return self.text + name.removeprefix(_TEXT) if name.startswith(_TEXT) else name


RELEASED = Names(text="model.", tower="visual.")
MODULES = Names(text="model.language_model.", tower="model.visual.")


def reads_images(config: Any) -> bool:
    """Whether a transformers configuration is that of a policy with images, trained here."""
    return config.model_type in TRAINED_VISION_ARCHITECTURES


def text_config(config: Any, folder: Path) -> Any:
    """The decoder's own configuration. ModelError for positions that are not M-RoPE's."""
    text = config.text_config
    text.tie_word_embeddings = config.tie_word_embeddings
    rope = text.rope_parameters
    half = text.hidden_size // text.num_attention_heads // 2
    sections = rope.get("mrope_section")
    if rope["rope_type"] != "default" or not sections or sum(sections) != half:
        raise ModelError(
            f"{folder}: rope_parameters = {dict(rope)} in its config.json: the learner computes "
            f"M-RoPE alone for a policy that reads images, with an mrope_section that adds up to "
            f"{half}"
        )
    return text


def names_in(folder: Path) -> Names:
    """How the folder names its tensors."""
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as found:
            names = found.keys()
        if any(name.startswith(MODULES.text) for name in names):
            return MODULES
    return RELEASED
