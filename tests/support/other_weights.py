"""Another policy of a policy's shape, without the seconds that torch and transformers take to make
one."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file


def write_other_weights(model: Path, folder: Path) -> Path:
    """A copy of `model` in `folder` in which each tensor's values have changed places."""
    shutil.copytree(model, folder)
    draw = np.random.default_rng(0)
    file = folder / "model.safetensors"
    shuffled = {
        name: draw.permutation(values.ravel()).reshape(values.shape)
        for name, values in load_file(file).items()
    }
    save_file(shuffled, file, metadata={"format": "pt"})
    return folder
