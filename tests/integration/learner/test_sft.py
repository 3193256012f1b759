"""Imitation from a trajectories file: it learns, and goes on where it was."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from learner.errors import CheckpointError, DataError, TakenError
from learner.imitation import loop
from learner.imitation.traces import load_traces
from learner.intake.tokenizer_check import TokenizerCheck
from learner.lock import only_learner
from learner.sft import sft
from tests.integration.learner.fake_engine import random_group
from tests.integration.learner.models import (
    TEMPLATE,
    VOCABULARY,
    reference_log_probs,
    weights,
)
from toolwright import types as t
from toolwright.recipe import Recipe, load_recipe
from toolwright.trajectory_files import read_trajectories, write_trajectories
from toolwright.types import WeightVersion

pytestmark = pytest.mark.slow


def write_recipe(folder: Path, model: Path, **changes: Any) -> Recipe:
    """A recipe with an [sft] table; `changes` are dotted overrides with _ for the dot."""
    text = f"""
[run]
name = "test"
folder = "run"
steps = 4
groups_per_step = 3
group_size = 4
[policy]
model = "{model}"
[task]
source = "none.jsonl"
reward = "none:none"
[sampler]
endpoints = ["http://127.0.0.1:1"]
[sft]
data = "traces"
steps = 8
batch_size = 4
[sft.optimizer]
kind = "muon"
lr = 1e-2
muon_lr = 0.02
"""
    path = folder / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    return load_recipe(path, [f"{key}={value}" for key, value in changes.items()])


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """Ten trajectories of random tokens."""
    version = WeightVersion(lineage="a", step=0)
    groups = [random_group(number, version, Path(), size=2) for number in range(5)]
    write_trajectories(tmp_path / "traces", [t for group in groups for t in group])
    return tmp_path / "traces"


def lines_of(run: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in (run / "sft" / "sft.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def losses(folder: Path) -> list[float]:
    return [line["loss"] for line in lines_of(folder / "run")]


def held_out(run: Path) -> dict[int, tuple[float, int]]:
    """Held-out loss and best step by step; a later line of a step stands for the earlier one."""
    return {
        line["step"]: (line["heldout_loss"], line["heldout_best_step"])
        for line in lines_of(run)
        if "heldout_loss" in line
    }


def plain_loss(model: Path, traces: Path, *, everything: bool) -> float:
    """Mean negative log-likelihood by transformers: of what the policy wrote, or of all tokens."""
    found = []
    for trajectory in read_trajectories(traces):
        (sequence,) = trajectory.sequences
        logp, _ = reference_log_probs(model, list(sequence.token_ids))
        mask = torch.tensor(sequence.loss_mask[1:])
        found += (logp if everything else logp[mask]).tolist()
    return -sum(found) / len(found)


def test_it_learns_and_leaves_a_whole_folder(
    tmp_path: Path, model_folder: Path, traces: Path
) -> None:
    final = sft(write_recipe(tmp_path, model_folder, **{"sft.steps": 30}))
    found = losses(tmp_path)
    assert len(found) == 30
    assert sum(found[-3:]) < 0.7 * sum(found[:3])
    assert (final / "chat_template.jinja").read_text(encoding="utf-8") == TEMPLATE
    assert weights(final).keys() == weights(model_folder).keys()


def test_a_resumed_run_ends_where_an_uninterrupted_one_does(
    tmp_path: Path, model_folder: Path, traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = {"sft.heldout.fraction": 0.2, "sft.heldout.every": 2}
    whole = sft(write_recipe(tmp_path, model_folder, **held, **{"sft.output": "whole"}))
    again = {"run.folder": "other", "sft.output": "resumed", "sft.checkpoint_every": 3}
    recipe = write_recipe(tmp_path, model_folder, **held, **again)
    calls = 0

    def die_after_five(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 5:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    real = loop.finite_gradients
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop, "finite_gradients", die_after_five)
        sft(recipe)
    resumed = sft(recipe)
    first, second = weights(whole), weights(resumed)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert held_out(tmp_path / "run") == held_out(tmp_path / "other")
    best = [weights(tmp_path / run / "sft" / "best") for run in ("run", "other")]
    assert all(torch.equal(best[0][name], best[1][name]) for name in best[0])


def test_what_changed_between_two_starts_is_named(
    tmp_path: Path, model_folder: Path, traces: Path
) -> None:
    sft(write_recipe(tmp_path, model_folder, **{"sft.steps": 2}))
    with pytest.raises(CheckpointError, match="batch_size = 4, the recipe now says 2"):
        sft(write_recipe(tmp_path, model_folder, **{"sft.steps": 3, "sft.batch_size": 2}))
    with pytest.raises(CheckpointError, match="heldout_data = "):
        sft(write_recipe(tmp_path, model_folder, **{"sft.steps": 3, "sft.heldout.data": "traces"}))


@pytest.mark.parametrize("train_on", ["assistant", "all"])
def test_the_loss_is_the_mean_over_all_targets_as_transformers_computes_it(
    tmp_path: Path, model_folder: Path, traces: Path, train_on: str
) -> None:
    """The held-out loss of the same traces too: same weights, same tokens, same mean."""
    changes = {
        "sft.steps": 1,
        "sft.batch_size": 10,
        "sft.tokens_per_microbatch": 40,
        "sft.train_on": train_on,
        "sft.heldout.data": "traces",
    }
    sft(write_recipe(tmp_path, model_folder, **changes))
    before, first = lines_of(tmp_path / "run")
    wanted = plain_loss(model_folder, traces, everything=train_on == "all")
    assert first["loss"] == pytest.approx(wanted, rel=1e-5)
    assert before["heldout_loss"] == pytest.approx(wanted, rel=1e-5)
    assert first["perplexity"] == pytest.approx(math.exp(wanted), rel=1e-4)


def test_epochs_show_each_trace_that_often_and_long_traces_not_at_all(
    tmp_path: Path, model_folder: Path, traces: Path
) -> None:
    lengths = sorted(len(t.sequences[0].token_ids) for t in read_trajectories(traces))
    limit = lengths[6]  # of ten
    kept = sum(length <= limit for length in lengths)
    changes = {"sft.epochs": 3, "sft.max_length": limit}
    text = write_recipe(tmp_path, model_folder, **changes).path.read_text(encoding="utf-8")
    (tmp_path / "recipe.toml").write_text(text.replace("steps = 8\n", ""), encoding="utf-8")
    settings = [f"{key}={value}" for key, value in changes.items()]
    sft(load_recipe(tmp_path / "recipe.toml", settings))
    lines = lines_of(tmp_path / "run")
    assert sum(line["traces"] for line in lines) == 3 * kept
    assert {line["dropped_long"] for line in lines} == {10 - kept}
    assert lines[-1]["epoch"] == 3.0
    targets = load_traces(
        tmp_path / "traces", VOCABULARY, TokenizerCheck(model_folder), max_length=limit
    ).traces
    each = sum(row.count for trace in targets for row in trace.rows)
    assert sum(line["trained_tokens"] for line in lines) == 3 * each


def test_the_best_weights_are_those_of_the_lowest_held_out_loss(
    tmp_path: Path, model_folder: Path, traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no number is never the best, nor is what came later with the same loss."""
    said = iter([2.5, 2.0, 2.0, math.nan])
    monkeypatch.setattr(loop, "held_out_loss", lambda *_: next(said))
    saved: list[dict[str, torch.Tensor]] = []
    real = loop.Policy.save

    def save(policy: Any, folder: Path) -> None:
        real(policy, folder)
        saved.append(weights(folder))

    monkeypatch.setattr(loop.Policy, "save", save)
    changes = {"sft.steps": 3, "sft.heldout.fraction": 0.4, "sft.heldout.every": 1}
    sft(write_recipe(tmp_path, model_folder, **changes))
    assert [best for _, best in held_out(tmp_path / "run").values()] == [0, 1, 1, 1]
    assert len(saved) == 3  # before the first step, after it, and the last weights
    best = weights(tmp_path / "run" / "sft" / "best")
    assert all(torch.equal(saved[1][name], best[name]) for name in best)
    assert not all(torch.equal(saved[2][name], best[name]) for name in best)


def test_a_trace_beyond_the_policys_context_is_refused(tmp_path: Path, model_folder: Path) -> None:
    version = WeightVersion(lineage="a", step=0)
    long = t.Segment(author=t.Author.PROMPT, token_ids=[3] * 300)
    group = [
        replace(
            trajectory,
            sequences=tuple(
                replace(sequence, segments=(long, *sequence.segments))
                for sequence in trajectory.sequences
            ),
        )
        for trajectory in random_group(0, version, Path())
    ]
    write_trajectories(tmp_path / "traces", group)
    with pytest.raises(DataError, match=r"set sft\.max_length = 256"):
        sft(write_recipe(tmp_path, model_folder))
    with pytest.raises(DataError, match=r"all 4 traces .* the shortest has 3"):
        sft(write_recipe(tmp_path, model_folder, **{"sft.max_length": 256}))


def test_a_second_imitation_in_the_folder_is_refused(
    tmp_path: Path, model_folder: Path, traces: Path
) -> None:
    recipe = write_recipe(tmp_path, model_folder)
    with only_learner(tmp_path / "run" / "sft"), pytest.raises(TakenError, match="another learner"):
        sft(recipe)
    assert not (tmp_path / "run" / "sft.resolved.json").exists()


def test_missing_and_empty_data_are_named(tmp_path: Path, model_folder: Path) -> None:
    with pytest.raises(DataError, match="engine render"):
        sft(write_recipe(tmp_path, model_folder))
    write_trajectories(tmp_path / "traces", [])
    with pytest.raises(DataError, match="no trajectory"):
        sft(write_recipe(tmp_path, model_folder))
