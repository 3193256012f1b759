"""A teacher behind the real SGLang on CPU scores as the same teacher does in the learner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from learner import run as loop
from tests.contract import real_sampler
from tests.integration.learner.fake_engine import FakeEngine
from tests.integration.learner.rows import make_rows
from tests.integration.learner.test_distill import distilled, own_samples
from tests.integration.learner.test_run import recipe_for
from tests.support.policy import write_policy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

VOCABULARY = 320


def written(folder: Path, seed: int) -> Path:
    return real_sampler.write_model(write_policy(folder), seed, str(VOCABULARY))


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("teacher"), 7)


@pytest.fixture(scope="module")
def url(teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with real_sampler.serve(teacher, tmp_path_factory.mktemp("sglang") / "server.log") as url:
        yield url


def test_the_server_gives_what_the_folder_gives(
    tmp_path: Path, teacher: Path, url: str, one_rank: None
) -> None:
    from learner.config.weights import Optimizer
    from learner.loop.teachers import load_teachers, scored_by_teachers
    from learner.model.policy import load_policy

    model = written(tmp_path / "policy", 1)
    policy = load_policy(model, Optimizer(), "float32")
    rows = make_rows(40)
    said: list[str] = []
    both = []
    for name in (str(teacher), url):
        recipe, table = distilled(tmp_path, model, **{"learner.distill.teacher": f'"{name}"'})
        found = load_teachers(recipe, table, policy, said.append)
        both.append(scored_by_teachers(found, rows, 200))
    assert not said, "the server's tokenizer lies on this machine: it was compared"
    gaps = [
        np.abs(here.teacher - there.teacher).max()
        for here, there in zip(*both, strict=True)
        if here.teacher is not None and there.teacher is not None
    ]
    assert len(gaps) == len(rows) and max(gaps) < 1e-4


def test_a_run_learns_the_same_from_either(tmp_path: Path, teacher: Path, url: str) -> None:
    model = written(tmp_path / "policy", 1)

    def learnt(name: str) -> dict[str, torch.Tensor]:
        engine = FakeEngine()
        with ExitStack() as ending:
            ending.callback(engine.stop)
            engine.write = own_samples
            changes = {
                "learner.loss.kind": '"distill"',
                "learner.distill.teacher": f'"{name}"',
                "learner.optimizer.lr": 3e-3,
                "run.groups_per_step": 8,
                "run.steps": 3,
            }
            folder = tmp_path / str(name == url)
            folder.mkdir()
            final = loop.run(recipe_for(folder, model, engine, **changes))
        return load_file(final / "model.safetensors")

    here, there = learnt(str(teacher)), learnt(url)
    start = load_file(model / "model.safetensors")
    moved = max(float((here[name] - start[name]).abs().max()) for name in here)
    apart = max(float((here[name] - there[name]).abs().max()) for name in here)
    assert moved > 5e-3
    assert apart < 0.01 * moved, (apart, moved)
