"""Settings of a Hugging Face folder that change the model are computed, or refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from learner.check import check
from learner.cli import app
from learner.config.weights import Optimizer
from learner.errors import ModelError
from learner.model.policy import load_frozen, load_policy
from learner.training.step import score
from tests.integration.learner.models import reference_log_probs, write_model
from tests.integration.learner.rows import make_rows

pytestmark = pytest.mark.quick

ROPES: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
}


WINDOW = {
    "use_sliding_window": True,
    "sliding_window": 16,
    "max_window_layers": 1,
    "layer_types": None,
}


def with_settings(folder: Path, **settings: Any) -> Path:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    rope = settings.pop("rope", None)
    if rope is not None:
        config["rope_parameters"] = {"rope_theta": 5000.0, **rope}
    (folder / "config.json").write_text(json.dumps(config | settings), encoding="utf-8")
    return folder


@pytest.mark.parametrize(("kind", "rope"), [("qwen2-untied", "linear"), ("qwen3-tied", "yarn")])
def test_scaled_positions_are_those_of_transformers(
    tmp_path: Path, one_rank: None, kind: str, rope: str
) -> None:
    folder = with_settings(write_model(tmp_path / kind, kind), rope=ROPES[rope])
    plain = write_model(tmp_path / "plain", kind)
    rows, _ = score(load_frozen(folder, "float32"), make_rows(3, longest=120), 400, "old")
    worst, moved = 0.0, 0.0
    for row in rows:
        assert row.old is not None
        chosen = torch.from_numpy(row.target[1:])
        found = torch.from_numpy(row.old[1:])[chosen]
        expected, _ = reference_log_probs(folder, row.tokens.tolist())
        without, _ = reference_log_probs(plain, row.tokens.tolist())
        worst = max(worst, float((found - expected[chosen]).abs().max()))
        moved = max(moved, float((found - without[chosen]).abs().max()))
    assert worst < 1e-5
    assert moved > 1e-3, "the scaling changes nothing here: the test proves nothing"


@pytest.mark.parametrize(
    ("kind", "name", "settings"),
    [
        ("qwen3-tied", "hidden_act", {"hidden_act": "gelu"}),
        ("qwen3-tied", "attention_bias", {"attention_bias": True}),
        ("qwen3-tied", "sliding_window", WINDOW),
        ("qwen3-tied", "rope_type", {"rope": {"rope_type": "dynamic", "factor": 2.0}}),
        ("qwen3-tied", "quantization_config", {"quantization_config": {"quant_method": "fp8"}}),
        ("llama-tied", "mlp_bias", {"mlp_bias": True}),
        ("moe-untied", "mlp_only_layers", {"mlp_only_layers": [1]}),
        ("moe-untied", "decoder_sparse_step", {"decoder_sparse_step": 2}),
    ],
)
def test_what_is_not_computed_is_refused_by_name(
    tmp_path: Path, one_rank: None, kind: str, name: str, settings: dict[str, Any]
) -> None:
    folder = with_settings(write_model(tmp_path / "model", kind), **settings)
    with pytest.raises(ModelError, match=name):
        load_policy(folder, Optimizer(), "float32")


def test_experts_that_are_weighed_among_all_of_them(tmp_path: Path) -> None:
    folder = with_settings(write_model(tmp_path / "model", "moe-untied"), norm_topk_prob=False)
    assert check(folder).worst < 2e-6


def test_numbers_that_differ_are_a_sentence_and_a_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a setting that is passed over in silence looks like."""
    folder = with_settings(write_model(tmp_path / "model", "qwen2-untied"), rope=ROPES["yarn"])
    told = CliRunner().invoke(app, ["check", str(folder)])
    assert (told.exit_code, "agree with transformers" in told.stdout) == (0, True)
    monkeypatch.setattr("learner.model.bridge.frequencies", lambda _config: None)
    told = CliRunner().invoke(app, ["check", str(folder)])
    assert told.exit_code == 1
    assert "differs from transformers' by" in told.stderr
