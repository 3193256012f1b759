"""What `test_vision_parallel` compares: loss and gradients of rows with images.

`python -m tests.integration.learner.seeing_main MODEL FOLDER` writes FOLDER/NAME for each NAME of
WAYS, by ranks that are forked after the imports.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

from learner.ranks import device

device.install()

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from console.machine.ready import free_ports  # noqa: E402
from learner.config.objective import Kl, Loss  # noqa: E402
from learner.config.weights import Optimizer, Parallel, Recompute  # noqa: E402
from learner.model.policy import load_frozen, load_policy  # noqa: E402
from learner.ranks import parallel  # noqa: E402
from learner.training.objective import PolicyObjective  # noqa: E402
from learner.training.step import gradients, own_micro_batches, score  # noqa: E402
from tests.integration.learner.forked import together  # noqa: E402
from tests.integration.learner.named import named_gradients  # noqa: E402
from tests.integration.learner.rows import weighed  # noqa: E402
from tests.integration.learner.seeing import seeing_rows  # noqa: E402

WAYS: dict[str, tuple[int, Parallel, Recompute]] = {
    "alone": (1, Parallel(), "none"),
    "tensor": (2, Parallel(tensor=2), "selective"),
    "pipeline": (2, Parallel(pipeline=2), "full"),
    "data": (2, Parallel(), "none"),
}
"""How many ranks share the work, how, and what they compute twice."""


def compute(folder: Path, output: Path, name: str) -> None:
    """Writes the loss, the norm and the gradients by Hugging Face name."""
    _ranks, layout, recompute = WAYS[name]
    with parallel.ranks(tensor=layout.tensor, pipeline=layout.pipeline):
        policy = load_policy(
            folder, Optimizer(), "float32", layout=layout, recompute=recompute, vision="trained"
        )
        # Two micro-batches in all: of two data-parallel ranks one sees no image.
        rows = seeing_rows(folder, 3)
        mine = own_micro_batches(weighed([rows[0], rows[2]]), 30)
        stats = gradients(policy, mine, PolicyObjective(loss=Loss(), kl=Kl(), correction="bypass"))
        seen, _ = score(load_frozen(folder, "float32"), [rows[0], rows[2]], 30, "reference")
        out = {f"grad.{key}": value for key, value in named_gradients(policy).items()}
        out["loss"] = torch.tensor(stats["loss"])
        out["reference"] = torch.cat([torch.from_numpy(row.reference[row.target]) for row in seen])
        out["norm"] = torch.tensor(policy.gradient_norm())
        out["own images"] = torch.tensor(float(sum(len(part.shown) for part in mine)))
        if parallel.is_first():
            save_file(out, output)


def share(model: Path, folder: Path, rank: int, ports: dict[str, int]) -> None:
    """One rank's part in every way, one after the other."""
    for name, (ranks, _ways, _recompute) in WAYS.items():
        if rank >= ranks:
            continue
        os.environ |= {
            "RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(ports[name]),
        }
        compute(model, folder / name, name)


def main(model: Path, folder: Path) -> None:
    """Two ranks, forked: see `gradients_main`."""
    ports = dict(zip(WAYS, free_ports(len(WAYS)), strict=True))
    together([partial(share, model, folder, rank, ports) for rank in range(2)])


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
