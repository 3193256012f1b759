"""Checkpoints: what goes on is what would have gone on, and a death in between hurts nothing."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from traceback import StackSummary
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException

from learner.config.objective import Kl, Loss
from learner.config.weights import Lora, Optimizer, Parallel
from learner.errors import CheckpointError
from learner.intake.ledger import Ledger
from learner.model.policy import Policy, load_policy
from learner.saving import checkpoint
from learner.saving.checkpoint import Checkpoints, check_fits, read_state
from learner.training.objective import PolicyObjective
from learner.training.update import improve
from tests.integration.learner.models import write_model
from tests.integration.learner.rows import make_rows
from toolwright.types import WeightVersion

pytestmark = pytest.mark.quick

SETTINGS = {
    "adam": Optimizer(lr=1e-2, weight_decay=0.1, warmup_steps=4),
    "muon": Optimizer(kind="muon", lr=1e-2, muon_lr=0.02, warmup_steps=4),
}
SPLIT, WHOLE = Parallel(distributed_optimizer=True), Parallel()


def train(policy: Policy, steps: range) -> list[float]:
    """Gradient norms of steps whose batches follow from their number."""
    return [
        improve(
            policy,
            make_rows(4, seed=step),
            PolicyObjective(loss=Loss(), kl=Kl(), correction="bypass"),
            reference=None,
            updates=1,
            budget=200,
            step=step,
            steps=10,
            drop_silent=False,
        ).grad_norm
        for step in steps
    ]


def flat(policy: Policy) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in policy.bare.parameters()])


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("before", [0, 3])
def test_resume_is_exact(
    tmp_path: Path, model_folder: Path, one_rank: None, kind: str, precision: str, before: int
) -> None:
    resumes_exactly(tmp_path, model_folder, SETTINGS[kind], precision, before)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("before", [0, 3])
def test_a_split_optimizer_resumes_exactly(
    tmp_path: Path, model_folder: Path, one_rank: None, precision: str, before: int
) -> None:
    resumes_exactly(tmp_path, model_folder, SETTINGS["adam"], precision, before, layout=SPLIT)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize(("writes", "reads"), [(WHOLE, SPLIT), (SPLIT, WHOLE)])
def test_split_and_whole_optimizers_read_each_other(
    tmp_path: Path,
    model_folder: Path,
    one_rank: None,
    precision: str,
    before: int,
    writes: Parallel,
    reads: Parallel,
) -> None:
    policy = load_policy(model_folder, SETTINGS["adam"], precision, layout=writes)
    train(policy, range(before))
    path = Checkpoints(tmp_path, kept=1).save(policy, before, "a", {}, Ledger())
    other = load_policy(model_folder, SETTINGS["adam"], precision, layout=reads)
    train(other, range(7, 9))
    Checkpoints(tmp_path, kept=1).load(other, path)
    later = range(before, before + 3)
    assert train(other, later) == pytest.approx(train(policy, later), rel=1e-6)
    assert torch.allclose(flat(other), flat(policy), atol=1e-6)


def test_adapters_of_a_split_optimizer_resume_exactly(
    tmp_path: Path, model_folder: Path, one_rank: None
) -> None:
    settings = SETTINGS["adam"]
    resumes_exactly(tmp_path, model_folder, settings, "float32", 2, layout=SPLIT, lora=Lora(rank=2))


def test_experts_resume_exactly(tmp_path: Path, one_rank: None) -> None:
    folder = write_model(tmp_path / "moe", "moe-untied")
    resumes_exactly(tmp_path / "run", folder, SETTINGS["adam"], "float32", 2)


def resumes_exactly(
    folder: Path, model: Path, settings: Optimizer, precision: str, before: int, **options: Any
) -> None:
    policy = load_policy(model, settings, precision, **options)
    train(policy, range(before))
    checkpoints = Checkpoints(folder, kept=2)
    path = checkpoints.save(policy, before, "a", {"step": before}, Ledger())
    drawn = torch.rand(4)
    norms = train(policy, range(before, before + 3))

    other = load_policy(model, settings, precision, **options)
    train(other, range(7, 9))  # some other state, to be overwritten
    checkpoints.load(other, path)
    assert torch.equal(torch.rand(4), drawn), "the random state is the checkpoint's"
    assert train(other, range(before, before + 3)) == norms
    assert torch.equal(flat(other), flat(policy))


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_norms_and_biases_do_not_decay(
    tmp_path: Path, one_rank: None, kind: str, precision: str
) -> None:
    """Gradients of zero leave the decay alone to move a weight."""
    settings = Optimizer(kind=kind, lr=0.1, muon_lr=0.1, weight_decay=0.5)  # type: ignore[arg-type]
    policy = load_policy(write_model(tmp_path / "qwen2", "qwen2-untied"), settings, precision)
    before = {n: p.detach().clone() for n, p in policy.bare.named_parameters()}
    policy.zero_grad()
    policy.set_rate(0, 10)
    policy.update(policy.gradient_norm())
    moved = {n for n, p in policy.bare.named_parameters() if not torch.equal(p, before[n])}
    matrices = {n for n, p in before.items() if p.dim() > 1}
    assert any(name.endswith("bias") for name in before)
    if kind == "muon":  # Muon has no decay
        matrices = {n for n in matrices if "embedding" in n or "output_layer" in n}
    assert moved == matrices


def test_a_changed_decay_and_beta_take_effect_on_resume(
    tmp_path: Path, model_folder: Path, one_rank: None
) -> None:
    policy = load_policy(model_folder, Optimizer(lr=1e-2, weight_decay=0.1), "float32")
    train(policy, range(2))
    path = Checkpoints(tmp_path, kept=2).save(policy, 2, "a", {}, Ledger())
    changed = Optimizer(lr=1e-2, weight_decay=0.3, beta1=0.5, beta2=0.6)
    other = load_policy(model_folder, changed, "float32")
    Checkpoints(tmp_path, kept=2).load(other, path)
    assert {(g["weight_decay"], g["betas"]) for g in other.optimizer.param_groups} == {
        (0.3, (0.5, 0.6)),
        (0.0, (0.5, 0.6)),
    }


def test_leftovers_of_a_death_are_swept(tmp_path: Path, model_folder: Path, one_rank: None) -> None:
    policy = load_policy(model_folder, SETTINGS["adam"], "float32")
    checkpoints = Checkpoints(tmp_path, kept=2)
    path = checkpoints.save(policy, 1, "a", {}, Ledger())
    (tmp_path / ".step-00000002-a.unfinished" / "model").mkdir(parents=True)
    (tmp_path / ".latest").write_text("step-0000", encoding="utf-8")
    checkpoints.sweep()
    assert {p.name for p in tmp_path.iterdir()} == {path.name, "latest"}


def test_muon_moves_the_matrices_and_adam_the_rest(model_folder: Path, one_rank: None) -> None:
    for chosen, other in (("muon_lr", "lr"), ("lr", "muon_lr")):
        settings = Optimizer(kind="muon").model_copy(update={chosen: 0.01, other: 0.0})
        policy = load_policy(model_folder, settings, "float32")
        before = {n: p.detach().clone() for n, p in policy.bare.named_parameters()}
        train(policy, range(2))
        moved = {n for n, p in policy.bare.named_parameters() if not torch.equal(p, before[n])}
        matrices = {n for n, p in before.items() if p.dim() == 2 and "embedding" not in n}
        assert moved == (matrices if chosen == "muon_lr" else set(before) - matrices)


def test_state_and_ledger_travel_with_the_weights(
    tmp_path: Path, model_folder: Path, one_rank: None
) -> None:
    policy = load_policy(model_folder, SETTINGS["adam"], "float32")
    ledger = Ledger()
    version = WeightVersion(lineage="a", step=1)
    ledger.consume(sequence_number=4, group="g", content_hash="h", version=version)
    checkpoints = Checkpoints(tmp_path, kept=2)
    for step in (1, 2, 3):
        checkpoints.save(policy, step, "a", {"step": step}, ledger)
    latest = checkpoints.latest()
    assert latest is not None
    assert read_state(latest) == ({"step": 3}, ledger)
    assert sorted(p.name for p in tmp_path.glob("step-*")) == ["step-00000002-a", "step-00000003-a"]


@pytest.mark.parametrize("layout", [WHOLE, SPLIT])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_steps_during_the_write_are_not_in_the_checkpoint(
    tmp_path: Path,
    model_folder: Path,
    one_rank: None,
    monkeypatch: pytest.MonkeyPatch,
    layout: Parallel,
    precision: str,
) -> None:
    policy = load_policy(model_folder, SETTINGS["adam"], precision, layout=layout)
    train(policy, range(2))
    trained, save = threading.Event(), checkpoint.save_sharded

    def late(*args: Any, **options: Any) -> Any:
        assert trained.wait(60)
        return save(*args, **options)

    monkeypatch.setattr(checkpoint, "save_sharded", late)
    with Checkpoints(tmp_path, kept=1) as checkpoints:
        path = checkpoints.begin(policy, 2, "a", {"step": 2}, Ledger())
        norms = train(policy, range(2, 5))
        assert not checkpoints.written
        assert checkpoints.latest() is None
        trained.set()
        checkpoints.settle()
    assert checkpoints.latest() == path
    other = load_policy(model_folder, SETTINGS["adam"], precision, layout=layout)
    checkpoints.load(other, path)
    assert train(other, range(2, 5)) == norms
    assert torch.equal(flat(other), flat(policy))


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("layout", [WHOLE, SPLIT])
def test_states_in_host_memory_between_steps_change_nothing(
    tmp_path: Path,
    model_folder: Path,
    one_rank: None,
    kind: str,
    precision: str,
    layout: Parallel,
) -> None:
    if kind == "muon" and layout is SPLIT:
        pytest.skip("Muon moves whole matrices")
    settings = SETTINGS[kind]
    stayed = load_policy(model_folder, settings, precision, layout=layout)
    norms = train(stayed, range(4))
    moved = load_policy(model_folder, settings, precision, layout=layout)
    buffers = moved.gradient_buffers()
    sizes = [buffer.untyped_storage().nbytes() for buffer in buffers]
    found = []
    for step in range(2):
        moved.states.come_back()
        found += train(moved, range(step, step + 1))
        moved.states.leave()
        assert [buffer.untyped_storage().nbytes() for buffer in buffers] == [0] * len(buffers)
    checkpoints = Checkpoints(tmp_path, kept=1)
    path = checkpoints.save(moved, 2, "a", {}, Ledger())
    moved.states.come_back()
    assert [buffer.untyped_storage().nbytes() for buffer in buffers] == sizes
    found += train(moved, range(2, 4))
    assert found == norms
    assert torch.equal(flat(moved), flat(stayed))
    other = load_policy(model_folder, settings, precision, layout=layout)
    checkpoints.load(other, path)
    assert train(other, range(2, 4)) == norms[2:]
    assert torch.equal(flat(other), flat(stayed))


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (OSError(errno.ENOSPC, "No space left"), r"OSError: .*No space left\): make room on the"),
        (PermissionError(errno.EACCES, "denied"), r"PermissionError: .*denied\): The previous"),
        (
            CheckpointException("all", {1: (OSError(errno.EDQUOT, "Quota"), StackSummary())}),
            r"OSError: .*Quota\): make room on the disk",
        ),
        (
            CheckpointException("all", {0: (ValueError("a shape"), StackSummary())}),
            r"ValueError: a shape\): The previous",
        ),
    ],
)
def test_a_write_that_fails_is_raised_when_it_is_waited_for(
    tmp_path: Path,
    model_folder: Path,
    one_rank: None,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    named: str,
) -> None:
    policy = load_policy(model_folder, SETTINGS["adam"], "float32")
    checkpoints = Checkpoints(tmp_path, kept=2)
    first = checkpoints.save(policy, 1, "a", {"step": 1}, Ledger())

    def full(*_args: object, **_options: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_sharded", full)
        checkpoints.begin(policy, 2, "a", {"step": 2}, Ledger())
        with pytest.raises(CheckpointError, match=named):
            checkpoints.settle()
    assert checkpoints.latest() == first
    assert checkpoints.save(policy, 3, "a", {"step": 3}, Ledger()) == checkpoints.latest()


@pytest.mark.parametrize("moment", ["tensors", "rename", "pointer"])
def test_a_death_while_saving_leaves_the_previous_checkpoint(
    tmp_path: Path,
    model_folder: Path,
    one_rank: None,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    policy = load_policy(model_folder, SETTINGS["adam"], "float32")
    checkpoints = Checkpoints(tmp_path, kept=2)
    first = checkpoints.save(policy, 1, "a", {"step": 1}, Ledger())

    whole = Path.replace
    fatal = {"rename": ".unfinished", "pointer": ".latest"}.get(moment, "")

    def die(*args: object, **_kwargs: object) -> None:
        if str(args[0]).endswith(fatal):
            raise KeyboardInterrupt
        whole(*args)  # type: ignore[arg-type]

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        if moment == "tensors":
            patch.setattr("learner.saving.checkpoint.save_sharded", die)
        else:
            patch.setattr(Path, "replace", die)
        checkpoints.save(policy, 2, "a", {"step": 2}, Ledger())
    assert checkpoints.latest() == first
    checkpoints.load(policy, first)
    second = checkpoints.save(policy, 2, "a", {"step": 2}, Ledger())
    assert checkpoints.latest() == second


def test_a_checkpoint_of_another_run_is_refused_by_name(
    tmp_path: Path, model_folder: Path, one_rank: None
) -> None:
    with pytest.raises(CheckpointError, match="seed = 1, the recipe now says 2"):
        check_fits({"seed": 1}, {"seed": 2}, tmp_path)
    policy = load_policy(model_folder, SETTINGS["adam"], "float32")
    checkpoints = Checkpoints(tmp_path / "c", kept=1)
    path = checkpoints.save(policy, 1, "a", {}, Ledger())
    other = load_policy(
        write_model(tmp_path / "other", "qwen2-untied"), SETTINGS["adam"], "float32"
    )
    with pytest.raises(CheckpointError, match="does not fit"):
        checkpoints.load(other, path)
    (tmp_path / "c" / "latest").write_text("step-00000009-a\n", encoding="utf-8")
    with pytest.raises(CheckpointError, match="step-00000009-a"):
        checkpoints.latest()
