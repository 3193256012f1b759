"""What `test_parallel` compares: loss and whole gradients of fixed rows, for any number of ranks.

A rank is `python gradients_main.py MODEL FOLDER TENSOR_PARALLEL=PORT ...` under torchrun. It
computes once for each TENSOR_PARALLEL, since its start costs far more, and writes
FOLDER/TENSOR_PARALLEL. Ranks meet at the PORT: in torchrun's own store they would find the
addresses of the time before.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from learner.model import device

device.install()

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from learner.config import Advantage, Kl, LearnerTable, Loss, Optimizer  # noqa: E402
from learner.loop.rows import prepare  # noqa: E402
from learner.model import parallel  # noqa: E402
from learner.model.policy import load_frozen, load_policy  # noqa: E402
from learner.training.batch import micro_batches  # noqa: E402
from learner.training.objective import PolicyObjective  # noqa: E402
from learner.training.step import gradients, score  # noqa: E402
from learner.training.update import improve  # noqa: E402
from tests.integration.learner.fake_engine import random_group  # noqa: E402
from tests.integration.learner.named import named_gradients, named_weights  # noqa: E402
from tests.integration.learner.rows import make_rows, weighed  # noqa: E402
from toolwright.types import Group, WeightVersion  # noqa: E402


def compute(folder: Path, output: Path, tensor: int) -> None:
    """Writes the loss, the gradients by Hugging Face name, and the weights three steps later."""
    with parallel.ranks(tensor=tensor):
        policy = load_policy(folder, Optimizer(lr=1e-2, clip=0.5), "float32")
        objective = PolicyObjective(
            loss=Loss(entropy=0.1), kl=Kl(coefficient=0.1), correction="decoupled"
        )
        masking = PolicyObjective(loss=Loss(kind="gspo"), kl=Kl(), correction="token_mask")
        rows = weighed(make_rows(9), "seq-mean-token-mean")
        reference = load_frozen(folder, "float32")
        rows, _ = score(reference, rows, 60, "reference")
        mine = micro_batches(rows, rank=parallel.data_rank(), ranks=parallel.data_size(), budget=60)
        stats = gradients(policy, mine, objective, entropy=objective.entropy)
        out = {f"grad.{name}": value for name, value in named_gradients(policy).items()}
        out["loss"] = torch.tensor(stats["loss"])
        out["gap"] = torch.tensor(stats["max_gap"])
        out["advantages"] = credit(policy, reference)
        for step in range(3):
            # The second batch has fewer rows than there may be ranks. Of the third something is
            # left out on each of them.
            done = improve(
                policy,
                make_rows(1 if step == 1 else 9, seed=step),
                objective if step < 2 else masking,
                reference=reference if step < 2 else None,
                updates=1,
                budget=60,
                step=step,
                steps=3,
                drop_silent=True,
            )
            out[f"norm.{step}"] = torch.tensor(done.grad_norm)
        out["masked"] = torch.tensor(done.sums["masked_tokens"])
        out["compared"] = torch.tensor(done.sums["compared"])
        out |= {f"weight.{name}": value for name, value in named_weights(policy).items()}
        if parallel.is_first():
            save_file(out, output)


def credit(policy: Any, reference: Any) -> torch.Tensor:
    """Advantages with KL in the reward: every rank scores its share, the first compares."""
    version = WeightVersion(lineage="a", step=0)
    groups = [
        Group(id=f"g{n}", trajectories=tuple(random_group(n, version, Path()))) for n in range(2)
    ]
    kl = Kl(coefficient=0.1, place="reward")
    run: Any = SimpleNamespace(
        table=LearnerTable(advantage=Advantage(estimator="reinforce_pp"), kl=kl),
        policy=policy,
        reference=reference,
        version=version,
        recipe=SimpleNamespace(shared=SimpleNamespace(sampler=SimpleNamespace(temperature=1.0))),
    )
    batch = prepare(run, groups if parallel.is_first() else None)
    assert batch.facts["kl_in_reward"] != 0
    return torch.cat([torch.from_numpy(row.advantage[row.target]) for row in batch.rows])


if __name__ == "__main__":
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
    for word in sys.argv[3:]:
        tensor, _, os.environ["MASTER_PORT"] = word.partition("=")
        compute(Path(sys.argv[1]), Path(sys.argv[2], tensor), int(tensor))
