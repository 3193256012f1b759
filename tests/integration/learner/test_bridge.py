"""Hugging Face folders in and out: bit-equal weights, the same log-probs as transformers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import StartupError
from engine.serving.journal.identity import policy_identity
from engine.serving.publish.policy_folder import check_policy_folder
from engine.serving.publish.policy_shape import difference
from learner.config.weights import Optimizer, Parallel
from learner.errors import ModelError
from learner.model.policy import load_frozen, load_policy
from learner.training.step import score
from tests.integration.learner.models import (
    KINDS,
    TEMPLATE,
    reference_log_probs,
    weights,
    write_model,
)
from tests.integration.learner.rows import make_rows
from toolwright.recipe import ARCHITECTURES

pytestmark = pytest.mark.quick


def test_no_other_model_of_mbridge_is_imported() -> None:
    """They bring half of the CPU time of a learner's start."""
    from mbridge.core.bridge import _MODEL_REGISTRY  # After the learner's own import of it.

    # What Qwen3-MoE is made of comes with it.
    assert set(_MODEL_REGISTRY) == {*ARCHITECTURES, "qwen2_moe"}


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip_is_bit_equal_and_complete(tmp_path: Path, one_rank: None, kind: str) -> None:
    source = write_model(tmp_path / "in", kind)
    load_policy(source, Optimizer(), "float32").save(tmp_path / "out")
    # What the engine looks at before it tells a sampler.
    assert difference(*map(check_policy_folder, (source, tmp_path / "out"))) is None
    before, after = weights(source), weights(tmp_path / "out")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert (tmp_path / "out" / "chat_template.jinja").read_text(encoding="utf-8") == TEMPLATE
    assert (tmp_path / "out" / "tokenizer.json").is_file()
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_a_saved_folder_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, one_rank: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine's journal names it: a power cut must not leave an empty file behind the name."""
    source = write_model(tmp_path / "in", KINDS[0])
    policy = load_policy(source, Optimizer(), "float32")
    seen: list[str] = []
    fsync, replace_ = os.fsync, os.replace

    def flushed(handle: int) -> None:
        seen.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    def renamed(old: Path, new: Path, **_rest: object) -> None:
        seen.append(f"named {new}")
        replace_(old, new)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    folder = tmp_path / "policy" / "a-1"
    for _ in range(2):  # the second time it replaces the first
        seen.clear()
        policy.save(folder)
        named = seen.index(f"named {folder}")
        before = {Path(path).name for path in seen[:named]}
        assert {path.name for path in folder.iterdir()} <= before
        assert seen[named + 1 :] == [str(folder.parent), str(tmp_path)]
    assert [path.name for path in folder.parent.iterdir()] == ["a-1"]


@pytest.mark.parametrize(("kind", "temperature"), [*((kind, 0.7) for kind in KINDS), (KINDS[0], 1)])
def test_log_probs_agree_with_transformers(
    tmp_path: Path, one_rank: None, kind: str, temperature: float
) -> None:
    source = write_model(tmp_path / "in", kind)
    rows = make_rows(5, temperature=temperature)
    scored, sums = score(load_frozen(source, "float32"), rows, 64, "old")
    entropy = 0.0
    for row in scored:
        expected, spread = reference_log_probs(source, row.tokens.tolist(), temperature)
        chosen = torch.from_numpy(row.target[1:])
        assert row.old is not None
        assert torch.allclose(torch.from_numpy(row.old[1:])[chosen], expected[chosen], atol=1e-5)
        entropy += float(spread[chosen].sum())
    assert sums["entropy"] == pytest.approx(entropy, rel=1e-4)


def test_experts_are_shared_out_whole(
    tmp_path: Path, model_folder: Path, one_rank: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a model without experts is not."""
    sizes = {"tensor": 1, "expert": 2}
    for name in sizes:
        monkeypatch.setattr(f"learner.ranks.parallel.{name}_size", lambda name=name: sizes[name])
    with pytest.raises(ModelError, match=r"parallel\.expert = 2 .*set it to 1"):
        load_policy(model_folder, Optimizer(), "float32")
    folder = write_model(tmp_path / "moe", "moe-untied")
    sizes["expert"] = 3
    with pytest.raises(ModelError, match=r"4 experts do not divide over parallel\.expert = 3"):
        load_policy(folder, Optimizer(), "float32")
    mend = r"mixture of experts.*parallel\.expert to 2.*sequence = true.*parallel\.tensor = 1"
    sizes |= {"tensor": 2, "expert": 1}
    with pytest.raises(ModelError, match=mend):
        load_policy(folder, Optimizer(), "float32", layout=Parallel(tensor=2, sequence=True))
    sizes["expert"] = 2
    with pytest.raises(ModelError, match=mend):
        load_policy(folder, Optimizer(), "float32", layout=Parallel(tensor=2))


def test_folders_that_cannot_be_trained_are_named(tmp_path: Path, one_rank: None) -> None:
    with pytest.raises(ModelError, match=r"policy\.model"):
        load_policy(tmp_path / "nothing", Optimizer(), "float32")
    (tmp_path / "config.json").write_text(
        '{"model_type": "mistral", "vocab_size": 8}', encoding="utf-8"
    )
    with pytest.raises(ModelError, match="mistral"):
        load_policy(tmp_path, Optimizer(), "float32")
    (tmp_path / "config.json").write_text('{"model_type": "qwen2_vl"}', encoding="utf-8")
    with pytest.raises(ModelError, match="can be sampled and evaluated, not trained here"):
        load_policy(tmp_path, Optimizer(), "float32")


def test_embeddings_that_do_not_fit_are_refused_by_name(tmp_path: Path, one_rank: None) -> None:
    source = write_model(tmp_path / "in", "qwen2-tied")
    file = source / "model.safetensors"
    tensors = load_file(file)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 1.0
    save_file(tensors, file, metadata={"format": "pt"})
    says = r"lm_head\.weight differs from .*embed_tokens"
    with pytest.raises(ModelError, match=says):
        load_frozen(source, "float32")
    with pytest.raises(StartupError, match=says):
        policy_identity(source)
