"""Adapters: what they train, what they leave, and that PEFT's formula says the same of the folder.

PEFT itself is not installed: the formula is computed here from the two files.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from megatron.core.dist_checkpointing import load_tensors_metadata
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from bench.gpu.stages import independent
from engine.serving.publish.adapter_folder import check_adapter_folder
from engine.serving.publish.policy_folder import check_policy_folder
from learner.config.objective import Loss
from learner.config.weights import Lora, Optimizer
from learner.errors import CheckpointError, ModelError
from learner.intake.ledger import Ledger
from learner.model.policy import Policy, borrowed_weights, load_frozen, load_policy
from learner.saving.checkpoint import Checkpoints, check_fits
from learner.training.batch import micro_batches
from learner.training.minibatch import MiniBatch, counts_of
from learner.training.objective import imitation
from learner.training.step import gradients, score
from learner.training.update import finite_gradients
from tests.integration.learner.models import reference_log_probs, weights, write_model
from tests.integration.learner.rows import make_rows, weighed
from tests.integration.learner.test_checkpoint import train
from tests.integration.learner.test_plain_step import OBJECTIVE

pytestmark = pytest.mark.quick

LORA = Lora(rank=3, alpha=6.0)
SOME = Lora(rank=2, alpha=3.0, targets=("q_proj", "v_proj", "up_proj"))
FAST = Optimizer(lr=2e-2)


def shaken(folder: Path, lora: Lora, settings: Optimizer = FAST) -> Policy:
    """A policy whose adapters all count."""
    policy = load_policy(folder, settings, "float32", lora)
    torch.manual_seed(1)
    for parameter in policy.bare.adapters.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return policy


def frozen(policy: Policy) -> dict[str, torch.Tensor]:
    return {
        name: parameter.detach().clone()
        for name, parameter in policy.bare.named_parameters()
        if not name.startswith("adapters.")
    }


def with_adapter(model: Any, folder: Path) -> dict[str, torch.Tensor]:
    """Puts a PEFT folder beside a transformers model's linear layers, by the formula of its
    documentation; the A and B as they lie in the file."""
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    tensors = load_file(folder / "adapter_model.safetensors")
    for name, layer in model.named_modules():
        if name.rpartition(".")[2] in config["target_modules"]:
            a = tensors[f"base_model.model.{name}.lora_A.weight"].requires_grad_()
            b = tensors[f"base_model.model.{name}.lora_B.weight"].requires_grad_()

            def add(_layer: Any, args: Any, out: Any, a: Any = a, b: Any = b) -> Any:
                return out + config["lora_alpha"] / config["r"] * (args[0] @ a.T @ b.T)

            layer.register_forward_hook(add)
    return tensors


@pytest.mark.parametrize("lora", [LORA, SOME], ids=["all", "some"])
@pytest.mark.parametrize("kind", ["qwen2-tied", "llama3-tied"])
def test_folder_adapter_and_gradients_are_those_of_peft(
    tmp_path: Path, one_rank: None, kind: str, lora: Lora
) -> None:
    source = write_model(tmp_path / "in", kind)
    policy = shaken(source, lora)
    out = tmp_path / "out"
    policy.save(out)
    plain = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    tensors = with_adapter(plain, out / "adapter")
    assert len(tensors) == 2 * 2 * len(lora.targets)

    rows, _ = score(policy, make_rows(4), 60, "old")
    rows = [replace(row, behaviour=row.old, old=None) for row in rows]  # type: ignore[arg-type]
    for row in rows:
        chosen = torch.from_numpy(row.target[1:])
        mine = torch.from_numpy(row.behaviour[1:])[chosen]
        merged, _ = reference_log_probs(out, row.tokens.tolist())
        base, _ = reference_log_probs(source, row.tokens.tolist())
        with torch.no_grad():
            logits = plain(torch.as_tensor(row.tokens)[None]).logits[0, :-1]
        peft = torch.log_softmax(logits, -1)
        peft = peft.gather(-1, torch.as_tensor(row.tokens)[1:, None])[:, 0]
        assert (mine - merged[chosen]).abs().max() < 5e-6
        assert (mine - peft[chosen]).abs().max() < 5e-6
        assert (mine - base[chosen]).abs().max() > 0.05, "the adapters change nothing here"

    loss = independent.loss(plain, rows, to_sampler=True)
    loss.backward()  # type: ignore[no-untyped-call]
    stats = gradients(policy, micro_batches(weighed(rows), rank=0, ranks=1, budget=60), OBJECTIVE)
    assert stats["loss"] == pytest.approx(float(loss.detach()), abs=1e-5)
    for layer, own in enumerate(policy.bare.adapters.own):
        for name, low in own.items():
            part = "mlp" if name == "up_proj" or name in ("gate_proj", "down_proj") else "self_attn"
            stem = f"base_model.model.model.layers.{layer}.{part}.{name}"
            for half, parameter in (("A", low.a), ("B", low.b)):
                expected = tensors[f"{stem}.lora_{half}.weight"].grad
                assert expected is not None
                assert (parameter.main_grad - expected).abs().max() < 1e-5


def test_fresh_adapters_change_nothing_and_the_folder_is_bit_equal(
    tmp_path: Path, one_rank: None
) -> None:
    source = write_model(tmp_path / "in", "qwen3-untied")
    load_policy(source, FAST, "float32", LORA).save(tmp_path / "out")
    before, after = weights(source), weights(tmp_path / "out")
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_only_adapters_learn_and_what_began_stays_at_hand(
    tmp_path: Path, model_folder: Path, one_rank: None
) -> None:
    policy = load_policy(model_folder, Optimizer(lr=2e-2, weight_decay=0.1), "float32", LORA)
    before = frozen(policy)
    moving = sum(p.numel() for p in policy.bare.parameters() if p.requires_grad)
    held = sum(p.numel() for g in policy.optimizer.param_groups for p in g["params"])
    assert held == moving == sum(p.numel() for p in policy.bare.adapters.parameters())
    rows = make_rows(6)
    losses = []
    counts = counts_of(rows, drop_silent=False)
    for step in range(12):
        part = MiniBatch(rows=rows, counts=counts, loss=Loss(), all_rows=True)
        policy.set_rate(step, 12)
        stats, norm, _ = finite_gradients(policy, part, imitation, 100, entropy="none")
        policy.update(norm)
        losses.append(stats["loss"])
    assert losses[-1] < losses[0] - 0.5
    assert all(torch.equal(value, before[name]) for name, value in frozen(policy).items())
    assert all(low.b.abs().max() > 0 for own in policy.bare.adapters.own for low in own.values())

    reference = policy.starting_model()
    assert reference is not None
    began, _ = score(reference, rows, 100, "reference")
    expected, _ = score(load_frozen(model_folder, "float32"), rows, 100, "reference")
    now, _ = score(policy, rows, 100, "old")
    for one, other, moved in zip(began, expected, now, strict=True):
        assert one.reference is not None
        assert np.array_equal(one.reference, other.reference)  # type: ignore[arg-type]
        assert not np.allclose(one.reference, moved.old, atol=1e-2)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["qwen3", "qwen2", "llama"])
def test_published_adapters_are_borrowed_and_given_back(
    tmp_path: Path, one_rank: None, kind: str
) -> None:
    """The folder has PEFT's two files alone. Under them a policy scores as their publisher."""
    source = write_model(tmp_path / "in", kind)
    publisher, policy = shaken(source, LORA), load_policy(source, FAST, "float32", LORA)
    publisher.save_adapters(tmp_path / "published" / "a-1")
    (folder,) = (tmp_path / "published").iterdir()
    assert {path.name for path in folder.iterdir()} == {
        "adapter_config.json", "adapter_model.safetensors"
    }  # fmt: skip
    check_adapter_folder(folder, check_policy_folder(source))
    rows = make_rows(4)
    before = [p.detach().clone() for p in policy.bare.parameters()]
    expected, _ = score(publisher, rows, 100, "old")
    with borrowed_weights(policy, folder):
        found, _ = score(policy, rows, 100, "old")
    plain, _ = score(policy, rows, 100, "old")
    for one, other, own in zip(found, expected, plain, strict=True):
        assert np.array_equal(one.old, other.old)  # type: ignore[arg-type]
        assert not np.allclose(one.old, own.old, atol=1e-2)  # type: ignore[arg-type]
    for kept, parameter in zip(before, policy.bare.parameters(), strict=True):
        assert torch.equal(kept, parameter)
    other_rank = load_policy(source, FAST, "float32", SOME)
    with (
        pytest.raises(ModelError, match=r"other adapters than learner\.lora"),
        borrowed_weights(other_rank, folder),
    ):
        pass
    with pytest.raises(ModelError, match=r"set learner\.lora"):
        load_policy(source, FAST, "float32").save_adapters(tmp_path / "none")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_resume_is_exact_and_needs_the_same_base(
    tmp_path: Path, model_folder: Path, one_rank: None, precision: str
) -> None:
    policy = load_policy(model_folder, FAST, precision, LORA)
    train(policy, range(2))
    checkpoints = Checkpoints(tmp_path / "run", kept=2)
    path = checkpoints.save(policy, 2, "a", {"model": policy.shape}, Ledger())
    norms = train(policy, range(2, 5))
    other = load_policy(model_folder, FAST, precision, LORA)
    train(other, range(7, 9))
    checkpoints.load(other, path)
    assert train(other, range(2, 5)) == norms
    for one, same in zip(policy.bare.parameters(), other.bare.parameters(), strict=True):
        assert torch.equal(one, same)

    stored = {
        name for name in load_tensors_metadata(str(path / "model")) if "adapters." not in name
    }
    assert stored == set(), "the frozen weights are in the checkpoint"
    changed = load_policy(write_model(tmp_path / "b", seed=5), FAST, precision, LORA)
    with pytest.raises(CheckpointError, match="base"):
        check_fits({"model": policy.shape}, {"model": changed.shape}, path)


def test_experts_have_adapters_on_their_attention_alone(tmp_path: Path, one_rank: None) -> None:
    folder = write_model(tmp_path / "moe", "moe-untied")
    with pytest.raises(ModelError, match=r"set lora\.targets = \['q_proj'"):
        load_policy(folder, FAST, "float32", LORA)
    policy = shaken(folder, Lora(targets=("q_proj", "o_proj")))
    policy.save(tmp_path / "out")
    (row,), _ = score(policy, make_rows(1), 60, "old")
    expected, _ = reference_log_probs(tmp_path / "out", row.tokens.tolist())
    assert row.old is not None
    chosen = torch.from_numpy(row.target[1:])
    assert (torch.from_numpy(row.old[1:])[chosen] - expected[chosen]).abs().max() < 5e-6
