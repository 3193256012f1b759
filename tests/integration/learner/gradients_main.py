"""What `test_parallel` compares: loss and whole gradients of fixed rows, for any number of ranks.

A rank is `python gradients_main.py MODEL CHECKPOINT FOLDER NAME=PORT ...` under torchrun. It
computes once for each NAME of WAYS, since its start costs far more, and writes FOLDER/NAME. Ranks
meet at the PORT: in torchrun's own store they would find the addresses of the time before.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from learner.model import device

device.install()

import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from learner.config.objective import Advantage, Kl, Loss  # noqa: E402
from learner.config.tables import LearnerTable  # noqa: E402
from learner.config.weights import Optimizer, Parallel, Publish, Recompute  # noqa: E402
from learner.intake.client import EngineClient  # noqa: E402
from learner.intake.ledger import Ledger  # noqa: E402
from learner.loop.rows import prepare  # noqa: E402
from learner.model import parallel  # noqa: E402
from learner.model.policy import Policy, load_frozen, load_policy  # noqa: E402
from learner.saving.behind import FolderBehind  # noqa: E402
from learner.saving.broadcast import ByGroup  # noqa: E402
from learner.saving.checkpoint import Checkpoints  # noqa: E402
from learner.training.batch import micro_batches  # noqa: E402
from learner.training.objective import PolicyObjective  # noqa: E402
from learner.training.step import gradients, score  # noqa: E402
from learner.training.update import improve  # noqa: E402
from tests.integration.learner.fake_engine import random_group  # noqa: E402
from tests.integration.learner.group_engine import GroupEngine  # noqa: E402
from tests.integration.learner.named import named_gradients, named_weights  # noqa: E402
from tests.integration.learner.rows import make_rows, weighed  # noqa: E402
from toolwright.types import Group, WeightVersion  # noqa: E402

WAYS: dict[str, tuple[Parallel, Recompute]] = {
    "alone": (Parallel(), "none"),
    "tensor x data": (Parallel(tensor=2), "selective"),
    "pipeline x data": (Parallel(pipeline=2), "none"),
    "tensor x pipeline": (Parallel(tensor=2, pipeline=2, sequence=True), "full"),
}
"""How one rank or four share the work, and what they compute twice."""


def compute(folder: Path, checkpoint: Path, output: Path, name: str) -> None:
    """Writes the loss, the gradients by Hugging Face name, the weights after each of three steps.

    The third step begins with the checkpoint, which is written first if it is not there.
    """
    ways, recompute = WAYS[name]
    with parallel.ranks(tensor=ways.tensor, pipeline=ways.pipeline):
        settings = Optimizer(lr=1e-2, clip=0.5)
        policy = load_policy(folder, settings, "float32", ways=ways, recompute=recompute)
        objective = PolicyObjective(
            loss=Loss(entropy=0.1), kl=Kl(coefficient=0.1), correction="decoupled"
        )
        masking = PolicyObjective(loss=Loss(kind="gspo"), kl=Kl(), correction="token_mask")
        rows = weighed(make_rows(9), "seq-mean-token-mean")
        reference = load_frozen(folder, "float32")
        rows, _ = score(reference, rows, 60, "reference")
        mine = micro_batches(
            rows,
            rank=parallel.data_rank(),
            ranks=parallel.data_size(),
            budget=60,
            multiple=ways.tensor,
        )
        stats = gradients(policy, mine, objective, entropy=objective.entropy)
        out = {f"grad.{name}": value for name, value in named_gradients(policy).items()}
        out["loss"] = torch.tensor(stats["loss"])
        out["gap"] = torch.tensor(stats["max_gap"])
        out["advantages"] = credit(policy, reference)
        for step in range(3):
            if step == 2:
                # From here on what the one process wrote, whoever reads it.
                checkpoints = Checkpoints(checkpoint, 1)
                if checkpoints.latest() is None:
                    checkpoints.save(policy, 2, "one", {}, Ledger())
                policy = load_policy(folder, settings, "float32", ways=ways, recompute=recompute)
                path = checkpoints.latest()
                assert path is not None
                checkpoints.load(policy, path)
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
            weights = named_weights(policy)
            out.update({f"weight.{step}.{weight}": value for weight, value in weights.items()})
        out["masked"] = torch.tensor(done.sums["masked_tokens"])
        out["compared"] = torch.tensor(done.sums["compared"])
        if name != "alone":
            check_broadcast(policy, output.with_name(f"{output.name}, sent"))
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


def check_broadcast(policy: Policy, root: Path) -> None:
    """What a sampler gets of these ranks by a process group is what their folder gets."""
    version = WeightVersion(lineage="sent", step=1)
    with ExitStack() as stack:
        client = None
        if parallel.is_first():
            engine = GroupEngine(servers=1)
            stack.callback(engine.stop)
            client = stack.enter_context(EngineClient(engine.address, patience=5.0, say=print))
        by_group = ByGroup(
            Publish(way="group"),
            root,
            kept=2,
            say=print,
            client=client,
            behind=stack.enter_context(FolderBehind()),
        )
        published = by_group.publish(policy, version)
        by_group.settle()
        policy.save(root / "saved")
        if parallel.is_first():
            (got,) = engine.received[version]
            saved = load_file(root / "saved" / "model.safetensors")
            behind = load_file(published.folder / "model.safetensors")
            assert got.keys() == saved.keys() == behind.keys()
            for name, tensor in saved.items():
                assert torch.equal(got[name], tensor)
                assert torch.equal(behind[name], tensor)


if __name__ == "__main__":
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
    model, checkpoint, folder = map(Path, sys.argv[1:4])
    for word in sys.argv[4:]:
        name, _, os.environ["MASTER_PORT"] = word.partition("=")
        compute(model, checkpoint, folder / name, name)
