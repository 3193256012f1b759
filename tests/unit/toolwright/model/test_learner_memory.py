"""The estimate of a rank's memory beside peaks of a GPU, and the fix when it does not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.gpu.stages.sizes import SIZES
from learner.config.tables import LearnerTable
from learner.config.training import TrainingTable
from learner.config.weights import Lora, Parallel
from toolwright.model.learner_memory import (
    Decoder,
    decoder_of,
    estimate,
    read_decoder,
    report,
)
from toolwright.model.model_folder import ModelFolderError

pytestmark = pytest.mark.quick

RESULTS = Path(__file__).parents[4] / "bench/gpu/results/nvidia-h100-80gb-hbm3.jsonl"
H100 = 80 << 30
"""Of one GPU, in bytes."""
MEASURED = {
    "train-0.6B": ("0.6B", 16_384, "none", None),
    "train-1.7B": ("1.7B", 8192, "none", None),
    "train-1.7B-recompute": ("1.7B", 16_384, "full", None),
    "train-4B-lora": ("4B", 8192, "none", Lora(rank=16, alpha=32.0)),
}
"""(policy, tokens of a micro-batch, recompute, adapters) of each stage."""


ZERO_HEADS = json.dumps(SIZES["tiny"].config | {"num_attention_heads": 0, "head_dim": 0})


def decoder(name: str) -> Decoder:
    return decoder_of(SIZES[name].config)


@pytest.mark.parametrize("stage", MEASURED)
def test_the_peak_of_a_gpu_is_within_three_percent(stage: str) -> None:
    lines = map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())
    peak = next(line["figures"]["peak_gb"] for line in lines if line["stage"] == stage)
    name, tokens, recompute, lora = MEASURED[stage]
    table = TrainingTable(precision="bfloat16", recompute=recompute, lora=lora)  # type: ignore[arg-type]
    found = estimate(decoder(name), table, cuda=H100)
    assert found.peak(tokens) / 1e9 == pytest.approx(peak, rel=0.03)


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("room", [24 << 30, 64 << 30])
def test_the_longest_micro_batch_fits_and_one_token_more_does_not(
    recompute: str, room: int
) -> None:
    table = TrainingTable(precision="bfloat16", recompute=recompute)  # type: ignore[arg-type]
    found = estimate(decoder("1.7B"), table, cuda=H100)
    longest = found.longest(room)
    assert found.activations(longest) <= room < found.activations(longest + 1)


@pytest.mark.parametrize(
    ("budget", "length", "room", "fix"),
    [
        (32_768, 4096, 80 << 30, "set learner.tokens_per_microbatch to at most "),
        (4096, 32_768, 80 << 30, "set task.limits.model to at most "),
        (4096, 4096, 20 << 30, "no token fits: set learner.parallel.tensor"),
        (4096, 4096, 80 << 30, None),
    ],
)
def test_the_fix_names_the_key(budget: int, length: int, room: int, fix: str | None) -> None:
    table = TrainingTable(precision="bfloat16", tokens_per_microbatch=budget)
    longest = (length, "task.limits.model")
    _, found = report(decoder("1.7B"), table, longest, room, name="learner", cuda=H100)
    assert (found or "").startswith(fix or "") and bool(found) == bool(fix)


def test_the_reference_and_each_teacher_count_as_a_model() -> None:
    plain = estimate(decoder("4B"), TrainingTable(precision="bfloat16"), cuda=H100)
    distill = {"teacher": "a", "teachers": {"one": "a", "two": "b"}}
    for changes, models in (
        ({"kl": {"coefficient": 0.1}}, 1),
        ({"kl": {"coefficient": 0.1}, "lora": {}}, 0),
        ({"loss": {"kind": "distill"}, "distill": distill}, 2),
    ):
        table = LearnerTable.model_validate({"precision": "bfloat16", **changes})
        assert table.frozen_models == models
        if table.lora is None:
            frozen = estimate(decoder("4B"), table, cuda=H100).states - plain.states
            assert frozen == pytest.approx(2 * 4.02e9 * models, rel=0.01)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"text_config": 1}', ZERO_HEADS])
def test_a_config_that_describes_no_decoder_is_one_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ModelFolderError, match=r"config\.json"):
        read_decoder(tmp_path)


def test_ranks_divide_what_they_share() -> None:
    one, four = (
        estimate(decoder("4B"), TrainingTable(precision="bfloat16", parallel=layout), cuda=H100)
        for layout in (Parallel(), Parallel(tensor=4, sequence=True))
    )
    assert one.peak(8192) == pytest.approx(4 * four.peak(8192), rel=0.1)
