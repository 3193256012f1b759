"""The memory that each preset in presets/scale states is what the estimate gives, and fits."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from bench.gpu.stages.sizes import SIZES
from learner.config.training import TrainingTable
from toolwright.model.learner_memory import decoder_of, estimate

pytestmark = pytest.mark.quick

FOLDER = Path(__file__).parents[3] / "recipes/presets/scale"
FILES = sorted(FOLDER.glob("*.toml"))
GIB = 1 << 30
GPU = 80 * GIB
FILLED = 0.93
"""Largest share of a GPU that is planned; the rest is for libraries and fragmentation."""
TRAJECTORY = 4096
"""Tokens of a trajectory that the comments count with."""


def test_every_size_is_there_for_one_four_and_eight_gpus() -> None:
    wanted = {f"{gpus}x80gb_{size}" for gpus in (1, 4, 8) for size in ("0.6b", "1.7b", "4b", "7b")}
    assert {file.stem for file in FILES} == wanted


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_stated_memory_is_the_estimate(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    recipe = tomllib.loads(text)
    gpus, _, size = file.stem.partition("x80gb_")
    architecture = SIZES[size.upper()]
    table = TrainingTable.model_validate({key: recipe["learner"][key] for key in recipe["learner"]})
    ranks, flags = recipe["console"]["ranks"], _flags(recipe)
    found = estimate(decoder_of(architecture.config), table, cuda=GPU)
    peak, states = _numbers(text, r"learner: ([\d.]+) GiB a rank, ([\d.]+) of them")
    assert found.peak(table.tokens_per_microbatch) / GIB == pytest.approx(peak, abs=0.06)
    assert found.states / GIB == pytest.approx(states, abs=0.06)

    share = float(flags["--mem-fraction-static"])
    a_token = 2 * 2 * architecture.groups * architecture.head * architecture.layers
    room = (share * GPU - 2 * architecture.parameters) // a_token
    tokens, trajectories = _numbers(text, r"sampler: ([\d,]+) tokens .* for (\d+) trajectories")
    assert (tokens, trajectories) == (room, room // TRAJECTORY)

    samplers = int(flags.get("--dp-size", 1))
    assert recipe["engine"]["max_concurrent"] <= samplers * trajectories
    shared = int(gpus) == 1
    assert shared or (int(flags["--base-gpu-id"]) == ranks and ranks + samplers == int(gpus))
    assert found.peak(table.tokens_per_microbatch) + share * GPU * shared <= FILLED * GPU
    assert share <= FILLED


def _flags(recipe: dict[str, Any]) -> dict[str, str]:
    flags = recipe["console"]["sampler"]["flags"]
    return dict(zip(flags[::2], flags[1::2], strict=True))


def _numbers(text: str, pattern: str) -> list[float]:
    found = re.search(pattern, text)
    assert found
    return [float(number.replace(",", "")) for number in found.groups()]
