"""Fused kernels: which are selected, and that the gradient stays the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from learner.config.weights import Optimizer, Recompute
from learner.errors import ModelError
from learner.model.kernels import fusions
from learner.model.policy import load_policy
from learner.training.batch import micro_batches
from learner.training.step import gradients
from tests.integration.learner.models import write_model
from tests.integration.learner.named import named_gradients
from tests.integration.learner.rows import make_rows, weighed
from tests.integration.learner.test_plain_step import OBJECTIVE, worst

pytestmark = pytest.mark.quick


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with all kernels."""
    monkeypatch.setattr(fusions.rope_utils, "fused_apply_rotary_pos_emb_thd", object())
    monkeypatch.setattr(fusions, "find_spec", lambda _name: object())


def test_what_exists_is_selected(kernels: None) -> None:
    for setting in ("auto", "on"):
        chosen = fusions.select(setting, images=False)
        assert chosen.options == {
            "apply_rope_fusion": True,
            "bias_activation_fusion": True,
            "gradient_accumulation_fusion": True,
        }
        assert chosen.summary == "fused: rotary positions, activation, gradient accumulation"
    assert fusions.select("off", images=False).options == {}


def test_what_does_not_exist_is_left_out_or_refused_by_name() -> None:
    chosen = fusions.select("auto", images=False)
    assert chosen.options == {"bias_activation_fusion": True}
    assert "not rotary positions (needs TransformerEngine)" in chosen.summary
    assert "not gradient accumulation (needs Apex" in chosen.summary
    with pytest.raises(ModelError, match=r"rotary positions .*needs TransformerEngine.*'auto'"):
        fusions.select("on", images=False)


def test_positions_of_images_are_not_fused(kernels: None) -> None:
    chosen = fusions.select("auto", images=True)
    assert "apply_rope_fusion" not in chosen.options
    assert "not with images" in chosen.summary


@pytest.mark.parametrize("recompute", ["none", "selective"])
@pytest.mark.parametrize("kind", ["qwen3-tied", "moe-untied"])
def test_gradients_are_those_without_fusions(
    tmp_path: Path, one_rank: None, kind: str, recompute: Recompute
) -> None:
    folder = write_model(tmp_path / "model", kind)
    parts = micro_batches(weighed(make_rows(6)), rank=0, ranks=1, budget=60)
    plain = load_policy(folder, Optimizer(), "float32")
    loss = gradients(plain, parts, OBJECTIVE)["loss"]
    fused = load_policy(folder, Optimizer(), "float32", recompute=recompute, fused="auto")
    assert fused.config.bias_activation_fusion
    assert gradients(fused, parts, OBJECTIVE)["loss"] == pytest.approx(loss, abs=1e-6)
    assert worst(named_gradients(fused), named_gradients(plain)) < 1e-6
