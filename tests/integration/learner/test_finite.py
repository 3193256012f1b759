"""No broken number reaches the weights."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from learner import run as loop
from learner.config.objective import Kl, Loss
from learner.config.weights import Optimizer
from learner.errors import DivergedError
from learner.model.policy import Policy, load_policy
from learner.sft import sft
from learner.training.batch import Row
from learner.training.objective import PolicyObjective
from learner.training.update import Update, improve
from tests.integration.learner.fake_engine import FakeEngine, random_group
from tests.integration.learner.models import VOCABULARY, weights
from tests.integration.learner.rows import make_rows
from tests.integration.learner.test_run import metrics, recipe_for
from tests.integration.learner.test_sft import write_recipe
from toolwright import types as t
from toolwright.trajectory_files import write_trajectories

pytestmark = pytest.mark.quick

UNSEEN = VOCABULARY - 1
"""A token that no other row holds: what is wrong with its embedding is wrong with one row."""


def rows_without_one_token() -> list[Row]:
    return [replace(r, tokens=r.tokens % UNSEEN) for r in make_rows(6)]


def take(policy: Policy, rows: list[Row]) -> Update:
    return improve(
        policy,
        rows,
        PolicyObjective(loss=Loss(), kl=Kl(), correction="token_truncate"),
        reference=None,
        updates=1,
        budget=60,
        step=0,
        steps=10,
        drop_silent=False,
    )


def flat(policy: Policy) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in policy.bare.parameters()])


def with_nan(row: Row, name: str) -> Row:
    if name == "loss":  # a number by itself; times the correction's weight it is none
        far = np.where(row.target, -30.0, row.behaviour).astype(np.float32)
        return replace(row, advantage=np.full_like(row.advantage, -3e38), behaviour=far)
    values = getattr(row, name).copy()
    values[np.flatnonzero(row.target)[0]] = -math.inf if name == "behaviour" else math.nan
    return replace(row, **{name: values})


@pytest.mark.parametrize("name", ["advantage", "loss", "behaviour", "temperature"])
def test_a_row_with_a_broken_number_leaves_batch_and_means(
    model_folder: Path, one_rank: None, name: str
) -> None:
    """The update is the one of the other rows alone, to the last bit."""
    rows = make_rows(6)
    expected, found = (load_policy(model_folder, Optimizer(lr=1e-2), "float32") for _ in range(2))
    alone = take(expected, [rows[0], rows[1], *rows[3:]])
    rows[2] = with_nan(rows[2], name)
    done = take(found, rows)
    assert done.dropped == ["t2"]
    assert (done.moved, done.broken) == (1, 0)
    assert done.grad_norm == alone.grad_norm
    assert done.sums == alone.sums
    assert torch.equal(flat(found), flat(expected))


def overflow(policy: Policy) -> Any:
    """From now on the backward of a token UNSEEN in the input overflows; the forward is whole."""

    def spoil(_module: Any, args: Any, out: torch.Tensor) -> torch.Tensor:
        tokens = args[0]
        if out.requires_grad:
            out.register_hook(
                lambda g: (
                    torch.where((tokens == UNSEEN).unsqueeze(-1), torch.inf, g)
                    if g.shape[:2] == tokens.shape
                    else g
                )
            )
        return out

    return policy.bare.embedding.word_embeddings.register_forward_hook(spoil)


def test_a_row_with_a_broken_gradient_is_found_and_leaves_the_batch(
    model_folder: Path, one_rank: None
) -> None:
    rows = rows_without_one_token()
    expected, found = (load_policy(model_folder, Optimizer(lr=1e-2), "float32") for _ in range(2))
    take(expected, rows[:2] + rows[3:])
    tokens = rows[2].tokens.copy()
    tokens[0] = UNSEEN
    rows[2] = replace(rows[2], tokens=tokens)
    handle = overflow(found)
    done = take(found, rows)
    handle.remove()
    assert done.dropped == ["t2"]
    assert (done.moved, done.broken) == (1, 0)
    assert torch.equal(flat(found), flat(expected))


def test_gradients_without_a_number_move_nothing(model_folder: Path, one_rank: None) -> None:
    policy = load_policy(model_folder, Optimizer(lr=1e-2, weight_decay=0.1), "float32")
    before = flat(policy).clone()
    rows = [replace(r, tokens=np.full_like(r.tokens, UNSEEN)) for r in make_rows(3)]
    handle = overflow(policy)
    done = take(policy, rows)
    handle.remove()
    assert (done.moved, done.broken, len(done.dropped)) == (0, 1, 3)
    assert torch.equal(flat(policy), before)
    assert take(policy, make_rows(4)).moved == 1, "the optimizer goes on afterwards"


def spoiled(logprob: float) -> Any:
    """What writes groups whose log-probs are no numbers while the version is 1, 2 or 3."""

    def spoil(segment: t.Segment) -> t.Segment:
        if segment.logprobs is None:
            return segment
        return replace(segment, logprobs=[logprob] * len(segment.logprobs))

    def write(number: int, version: t.WeightVersion, folder: Path) -> Any:
        members = random_group(number, version, folder)
        if version.step not in (1, 2, 3):
            return members
        return [
            replace(
                member,
                sequences=tuple(
                    replace(sequence, segments=tuple(map(spoil, sequence.segments)))
                    for sequence in member.sequences
                ),
            )
            for member in members
        ]

    return write


def test_a_reward_that_is_no_number_costs_its_own_trajectory_alone(
    tmp_path: Path, model_folder: Path, engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    """Step 1 goes on with the others of the group. In step 2 nothing is left to learn of."""

    def write(number: int, version: t.WeightVersion, folder: Path) -> Any:
        members = random_group(number, version, folder)
        bad = {0: [1] if number == 2 else [], 1: range(len(members))}[version.step]
        values = [math.nan if index in bad else m.reward for index, m in enumerate(members)]
        return [replace(m, reward=value) for m, value in zip(members, values, strict=True)]

    engine.write = write
    loop.run(recipe_for(tmp_path, model_folder, engine, **{"run.steps": 2}))
    first, second = metrics(tmp_path)
    assert (first["nonfinite_rewards"], first["nonfinite_rows"]) == (1, 0)
    assert (first["trajectories"], first["groups_with_signal"]) == (11, 3)
    assert first["skipped_update"] is False
    assert math.isfinite(first["reward"])
    assert (second["nonfinite_rewards"], second["worthless_steps"]) == (12, 1)
    said = capsys.readouterr().out
    assert "1 trajectories left the batch" in said
    assert "step 2 taught nothing: no trajectory has a reward that is a finite number" in said


def test_a_broken_step_publishes_no_weights_and_three_end_the_run(
    tmp_path: Path, model_folder: Path, engine: FakeEngine
) -> None:
    """Steps 2, 3 and 4 are broken. The version moves on, which is what admits the next batch."""
    engine.write = spoiled(math.nan)
    recipe = recipe_for(tmp_path, model_folder, engine, **{"run.steps": 8})
    with pytest.raises(DivergedError, match="steps 2 to 4") as caught:
        loop.run(recipe)
    assert caught.value.status == 3
    folders = engine.folders
    assert sorted(folders) == [0, 1, 2, 3]
    assert folders[2] == folders[3] == folders[1] != folders[0]
    lines = metrics(tmp_path)
    assert [line["nonfinite_rows"] for line in lines] == [0, 12, 12, 12]
    assert [line["nonfinite_updates"] for line in lines] == [0, 1, 1, 1]
    assert all(bool(w.isfinite().all()) for w in weights(folders[3]).values())


def test_imitation_stops_as_well(tmp_path: Path, model_folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    broken = load_file(model_folder / "model.safetensors")
    broken["model.norm.weight"][0] = math.nan
    folder = tmp_path / "broken"
    folder.mkdir()
    for file in model_folder.iterdir():
        if file.suffix != ".safetensors":
            (folder / file.name).write_bytes(file.read_bytes())
    save_file(broken, folder / "model.safetensors", metadata={"format": "pt"})
    version = t.WeightVersion(lineage="a", step=0)
    write_trajectories(tmp_path / "traces", random_group(0, version, Path()))
    with pytest.raises(DivergedError, match="3 steps in a row"):
        sft(write_recipe(tmp_path, folder))
    lines = (tmp_path / "run" / "sft" / "sft.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["nonfinite_rows"] for line in lines] == [4, 4, 4]
