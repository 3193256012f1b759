"""What `test_vision_parallel` compares: loss and gradients of rows with images.

A rank is `python seeing_main.py MODEL FOLDER NAME=PORT ...` under torchrun; see `gradients_main`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from learner.model import device

device.install()

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from learner.config.objective import Kl, Loss  # noqa: E402
from learner.config.weights import Optimizer, Parallel, Recompute  # noqa: E402
from learner.model import parallel  # noqa: E402
from learner.model.policy import load_policy  # noqa: E402
from learner.training.objective import PolicyObjective  # noqa: E402
from learner.training.step import gradients, own_micro_batches  # noqa: E402
from tests.integration.learner.named import named_gradients  # noqa: E402
from tests.integration.learner.rows import weighed  # noqa: E402
from tests.integration.learner.seeing import seeing_rows  # noqa: E402

WAYS: dict[str, tuple[Parallel, Recompute]] = {
    "alone": (Parallel(), "none"),
    "tensor": (Parallel(tensor=2), "selective"),
    "pipeline": (Parallel(pipeline=2), "full"),
    "data": (Parallel(), "none"),
}


def compute(folder: Path, output: Path, name: str) -> None:
    """Writes the loss, the norm and the gradients by Hugging Face name."""
    ways, recompute = WAYS[name]
    with parallel.ranks(tensor=ways.tensor, pipeline=ways.pipeline):
        policy = load_policy(
            folder, Optimizer(), "float32", ways=ways, recompute=recompute, vision="trained"
        )
        # Two micro-batches in all: of two data-parallel ranks one sees no image.
        rows = seeing_rows(folder, 3)
        mine = own_micro_batches(weighed([rows[0], rows[2]]), 30)
        stats = gradients(policy, mine, PolicyObjective(loss=Loss(), kl=Kl(), correction="bypass"))
        out = {f"grad.{key}": value for key, value in named_gradients(policy).items()}
        out["loss"] = torch.tensor(stats["loss"])
        out["norm"] = torch.tensor(policy.gradient_norm())
        out["own images"] = torch.tensor(float(sum(len(part.shown) for part in mine)))
        if parallel.is_first():
            save_file(out, output)


if __name__ == "__main__":
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
    model, folder = map(Path, sys.argv[1:3])
    for word in sys.argv[3:]:
        name, _, os.environ["MASTER_PORT"] = word.partition("=")
        compute(model, folder / name, name)
