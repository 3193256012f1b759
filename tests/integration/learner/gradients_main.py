"""What `test_parallel` compares: loss and whole gradients of fixed rows, for any number of ranks.

`python -m tests.integration.learner.gradients_main MODELS FOLDER` imports once and forks the ranks,
since an import costs far more than what a rank computes. For each NAME of WAYS the ranks that
share the work write FOLDER/NAME.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from learner.ranks import device

device.install()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from learner.config.objective import Advantage, Distill, Kl, Loss  # noqa: E402
from learner.config.tables import LearnerTable  # noqa: E402
from learner.config.weights import Optimizer, Parallel, Publish, Recompute  # noqa: E402
from learner.intake.client import EngineClient  # noqa: E402
from learner.intake.ledger import Ledger  # noqa: E402
from learner.loop.rows import prepare  # noqa: E402
from learner.model import policy as policies  # noqa: E402
from learner.model.policy import Policy, load_frozen, load_policy  # noqa: E402
from learner.ranks import parallel  # noqa: E402
from learner.saving.broadcast import BroadcastPublisher  # noqa: E402
from learner.saving.checkpoint import Checkpoints  # noqa: E402
from learner.saving.folder_writer import FolderWriter  # noqa: E402
from learner.training.batch import Row  # noqa: E402
from learner.training.objective import PolicyObjective  # noqa: E402
from learner.training.step import gradients, own_micro_batches, score  # noqa: E402
from learner.training.task_gradients import TaskGradients  # noqa: E402
from learner.training.update import improve  # noqa: E402
from tests.integration.learner.fake_engine import random_group  # noqa: E402
from tests.integration.learner.forked import together  # noqa: E402
from tests.integration.learner.group_engine import GroupEngine  # noqa: E402
from tests.integration.learner.named import named_gradients, named_weights  # noqa: E402
from tests.integration.learner.rows import make_rows, weighed  # noqa: E402
from toolwright.types import Group, WeightVersion  # noqa: E402


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How ranks share the work, and what they compute twice.

    model: a kind of `models`. ranks: those of the four that take part. after: the way whose
    checkpoint it goes on from; the one that goes on from none writes the first. sent: whether its
    weights also go to a sampler by a group.
    """

    model: str = "qwen3-tied"
    ranks: Sequence[int] = range(4)
    layout: Parallel = field(default_factory=Parallel)
    recompute: Recompute = "none"
    after: str = ""
    sent: bool = False


SPARSE = "moe-untied"
SPLIT = Parallel(distributed_optimizer=True)
OVERLAPPED = Parallel(distributed_optimizer=True, overlap=True)
LOW, HIGH = (0, 1), (2, 3)
WAYS = {
    "alone": Way(ranks=LOW[:1]),
    "experts alone": Way(model=SPARSE, ranks=HIGH[:1]),
    "tensor": Way(ranks=LOW, layout=Parallel(tensor=2), after="alone"),
    "pipeline": Way(ranks=LOW, layout=Parallel(pipeline=2), after="tensor"),
    "data": Way(ranks=LOW, after="pipeline"),
    "data, split": Way(ranks=LOW, layout=SPLIT, after="data"),
    "data, overlapped": Way(ranks=LOW, layout=Parallel(overlap=True), after="data, split"),
    "data, split, overlapped": Way(
        ranks=LOW, layout=OVERLAPPED, recompute="full", after="data, overlapped"
    ),
    "context": Way(ranks=LOW, layout=Parallel(context=2), after="data, split, overlapped"),
    "tensor, expert": Way(
        model=SPARSE,
        ranks=HIGH,
        layout=Parallel(tensor=2, expert=2, sequence=True),
        recompute="selective",
        after="experts alone",
    ),
    "expert": Way(
        model=SPARSE,
        ranks=HIGH,
        layout=Parallel(expert=2),
        recompute="full",
        after="tensor, expert",
    ),
    "tensor x data": Way(layout=Parallel(tensor=2), recompute="selective", after="context"),
    "tensor x data, split": Way(
        layout=Parallel(tensor=2, distributed_optimizer=True), after="tensor x data"
    ),
    "pipeline x data": Way(layout=Parallel(pipeline=2), after="tensor x data, split"),
    "tensor x pipeline": Way(
        layout=Parallel(tensor=2, pipeline=2, sequence=True),
        recompute="full",
        after="pipeline x data",
        sent=True,
    ),
    "pipeline x context, split": Way(
        layout=Parallel(pipeline=2, context=2, distributed_optimizer=True),
        after="tensor x pipeline",
        sent=True,
    ),
    "pipeline x expert": Way(
        model=SPARSE, layout=Parallel(pipeline=2, expert=2), after="expert", sent=True
    ),
    "tensor x context, expert x data": Way(
        model=SPARSE,
        layout=Parallel(tensor=2, context=2, expert=2, sequence=True),
        recompute="selective",
        after="pipeline x expert",
    ),
    "expert x data, split": Way(
        model=SPARSE,
        layout=Parallel(expert=2, distributed_optimizer=True),
        after="tensor x context, expert x data",
    ),
    "expert x data, split, overlapped": Way(
        model=SPARSE,
        layout=Parallel(expert=2, distributed_optimizer=True, overlap=True),
        after="expert x data, split",
    ),
    "pipeline x data, split, overlapped": Way(
        layout=Parallel(pipeline=2, distributed_optimizer=True, overlap=True),
        recompute="selective",
        after="pipeline x context, split",
        sent=True,
    ),
}
"""In the order in which the ranks come to them; nobody comes to one before what it goes on from."""


def compute(models: Path, folder: Path, name: str) -> None:
    """Writes the loss, the gradients by Hugging Face name, the weights after two and three steps.

    The third step begins with the checkpoint of the way before. It is written again: what the next
    one reads are the same weights and moments, as these ranks lay them down.
    """
    way = WAYS[name]
    policies.BUCKET_NUMBERS = 4000  # several of them in a tiny model
    model, layout, recompute = models / way.model, way.layout, way.recompute
    with parallel.ranks(
        tensor=layout.tensor, pipeline=layout.pipeline, context=layout.context, expert=layout.expert
    ):
        settings = Optimizer(lr=1e-2, clip=0.5)
        policy = load_policy(model, settings, "float32", layout=layout, recompute=recompute)
        objective = PolicyObjective(
            loss=Loss(entropy=0.1), kl=Kl(coefficient=0.1), correction="decoupled"
        )
        masking = PolicyObjective(loss=Loss(kind="gspo"), kl=Kl(), correction="token_mask")
        rows = weighed(make_rows(9), "seq-mean-token-mean")
        reference = load_frozen(model, "float32")
        rows, _ = score(reference, rows, 60, "reference")
        mine = own_micro_batches(rows, 60)
        stats = gradients(policy, mine, objective, entropy=objective.entropy)
        out = {f"grad.{name}": value for name, value in named_gradients(policy).items()}
        out["loss"] = torch.tensor(stats["loss"])
        out["gap"] = torch.tensor(stats["max_gap"])
        out |= apart(policy, rows, objective)
        out["advantages"] = credit(policy, reference)
        for step in range(3):
            if step == 2:
                checkpoint = Checkpoints(folder / f"checkpoint {name}", 1)
                if way.after:
                    before = Checkpoints(folder / f"checkpoint {way.after}", 1).latest()
                    assert before is not None
                    policy = load_policy(
                        model, settings, "float32", layout=layout, recompute=recompute
                    )
                    checkpoint.load(policy, before)
                checkpoint.begin(policy, 2, "one", {}, Ledger())  # written during the update
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
            if step == 2:
                checkpoint.settle()
            out[f"norm.{step}"] = torch.tensor(done.grad_norm)
            if step:  # the second is of the first one's weights
                weights = named_weights(policy)
                out.update({f"weight.{step}.{weight}": value for weight, value in weights.items()})
        out["masked"] = torch.tensor(done.sums["masked_tokens"])
        out["compared"] = torch.tensor(done.sums["compared"])
        if way.sent:
            check_broadcast(policy, folder / f"{name}, sent")
        if parallel.is_first():
            save_file(out, folder / name)


def apart(
    policy: Policy, rows: Sequence[Row], objective: PolicyObjective
) -> dict[str, torch.Tensor]:
    """What three tasks' own gradients tell, and what their sum is."""
    tasks = TaskGradients(("a", "b", "c"))
    mixed = [replace(row, task=place % 3) for place, row in enumerate(rows)]
    broken = torch.zeros(len(rows), device=device.device())
    tasks(policy, mixed, objective, 60, entropy=objective.entropy, broken=broken)
    out = {f"apart.{name}": torch.tensor(value) for name, value in tasks.found.items()}
    return out | {f"apart.{name}": value for name, value in named_gradients(policy).items()}


def credit(policy: Any, reference: Any) -> torch.Tensor:
    """Advantages with KL in the reward and a teacher: every rank scores its share, the first
    compares."""
    version = WeightVersion(lineage="a", step=0)
    groups = [
        Group(id=f"g{n}", trajectories=tuple(random_group(n, version, Path()))) for n in range(2)
    ]
    kl = Kl(coefficient=0.1, place="reward")
    run: Any = SimpleNamespace(
        table=LearnerTable(
            advantage=Advantage(estimator="reinforce_pp"),
            kl=kl,
            loss=Loss(kind="distill"),
            distill=Distill(teacher=str(reference.source), reward=True),
        ),
        teachers=(reference,),
        policy=policy,
        reference=reference,
        version=version,
        images=None,
        recipe=SimpleNamespace(
            shared=SimpleNamespace(sampler=SimpleNamespace(temperature=1.0), each_task={"": None})
        ),
    )
    batch = prepare(run, groups if parallel.is_first() else None)
    assert batch.facts["kl_in_reward"] == batch.facts["kl_teacher"] != 0
    return torch.cat([torch.from_numpy(row.advantage[row.target]) for row in batch.rows])


def share(models: Path, folder: Path, rank: int, ports: dict[str, int]) -> None:
    """One rank's part in every way, one after the other. ports: of the stores where ranks meet."""
    for name, way in WAYS.items():
        if rank not in way.ranks:
            continue
        os.environ |= {
            "RANK": str(way.ranks.index(rank)),
            "WORLD_SIZE": str(len(way.ranks)),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(ports[name]),
            "TORCHELASTIC_USE_AGENT_STORE": "True",  # no rank hosts it
        }
        compute(models, folder, name)
    late = {"learner.vision.pixels", "learner.vision.tower"} & set(sys.modules)
    assert not late, f"a text policy pays for the imports of {late}"


def main(models: Path, folder: Path) -> None:
    """Four ranks, forked."""
    # Held from the beginning: nobody else gets the port before the ranks come to it.
    listeners = {name: socket.create_server(("127.0.0.1", 0)) for name in WAYS}
    ports = {name: listener.getsockname()[1] for name, listener in listeners.items()}

    def stores() -> list[dist.TCPStore]:
        return [
            dist.TCPStore(
                "127.0.0.1",
                ports[name],
                is_master=True,
                wait_for_workers=False,
                master_listen_fd=listener.detach(),
            )
            for name, listener in listeners.items()
        ]

    together([partial(share, models, folder, rank, ports) for rank in range(4)], stores)


def check_broadcast(policy: Policy, root: Path) -> None:
    """What a sampler gets of these ranks by a process group is what their folder gets."""
    version = WeightVersion(lineage="sent", step=1)
    with ExitStack() as stack:
        client = None
        if parallel.is_first():
            engine = GroupEngine(servers=1)
            stack.callback(engine.stop)
            client = stack.enter_context(EngineClient(engine.address, patience=5.0, say=print))
        publisher = BroadcastPublisher(
            Publish(way="group"),
            root,
            kept=2,
            say=print,
            client=client,
            folders=stack.enter_context(FolderWriter()),
        )
        published = publisher.publish(policy, version)
        publisher.settle()
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
    main(*map(Path, sys.argv[1:]))
