"""`bench retokenisation --gradients` with the learner's own model and loss."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from learner.ranks import device

device.install()

from bench.cli import app  # noqa: E402
from bench.retokenisation.encoder import FolderEncoder  # noqa: E402
from toolwright import types as t  # noqa: E402
from toolwright.model.tiny_policy import write_policy  # noqa: E402
from toolwright.trajectory_files import write_trajectories  # noqa: E402

pytestmark = pytest.mark.quick

WORDS = "the answer of the question is the sum of the numbers"


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights and a tokenizer that has tokens for some words."""
    folder = tmp_path_factory.mktemp("policy")
    said = [{"role": "user", "content": WORDS}, {"role": "assistant", "content": WORDS}]
    write_policy(folder, conversations=[said] * 20, tags=("<python>", "</python>"), seed=1)
    return folder


def file_of(folder: Path, actions: Sequence[Sequence[int]], rewards: Sequence[float]) -> Path:
    """One group, a member an action."""
    written = []
    for number, (action, reward) in enumerate(zip(actions, rewards, strict=True)):
        segments = (
            t.Segment(author=t.Author.PROMPT, token_ids=t.ids([5, 6, 7])),
            t.Segment(
                author=t.Author.MODEL,
                token_ids=t.ids(action),
                logprobs=t.floats([-5.0] * len(action)),
                trainable=True,
            ),
        )
        written.append(
            t.Trajectory(
                id=f"t{number}",
                group_id="g",
                task=t.Task(id="q"),
                sequences=(t.Sequence(id=f"t{number}.0", segments=segments),),
                status=t.Status.COMPLETED,
                stop_reason=t.StopReason.ANSWERED,
                reward=reward,
            )
        )
    file = folder / "a.trajectories"
    write_trajectories(file, written)
    return file


def told(file: Path, policy: Path) -> dict[str, Any]:
    out = file.with_suffix(".json")
    asked = ["retokenisation", str(file), "--policy", str(policy), "--gradients"]
    done = CliRunner().invoke(app, [*asked, "--json", str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


def test_where_no_id_changes_both_gradients_are_one(policy: Path, tmp_path: Path) -> None:
    whole = FolderEncoder(policy).encode(WORDS)[0]
    found = told(file_of(tmp_path, [whole, whole[:5]], [1.0, 0.0]), policy)
    assert found["sequences_changed"] == 0
    assert found["gradients"]["ratio"] == {"by_index": 1.0, "anew": 1.0}
    assert found["gradients"]["by_index"][0]["norm"] > 0
    assert found["gradients"]["reward"] == 0.5


def test_other_ids_have_another_gradient(policy: Path, tmp_path: Path) -> None:
    encoder = FolderEncoder(policy)
    spelled = [encoder.encode(letter)[0][0] for letter in WORDS]
    found = told(file_of(tmp_path, [spelled, spelled[:9]], [1.0, 0.0]), policy)
    assert found["sequences_changed"] == 1.0
    recorded, shifted = found["gradients"]["by_index"]
    assert shifted["tokens"] < recorded["tokens"]
    assert found["gradients"]["ratio"]["by_index"] != pytest.approx(1.0, abs=0.01)
    before, after = found["gradients"]["anew"]
    assert before["gap"] == after["gap"] == pytest.approx(0.0, abs=1e-5)


def test_equal_rewards_have_no_gradient_to_compare(policy: Path, tmp_path: Path) -> None:
    file = file_of(tmp_path, [[8, 9], [9, 8]], [1.0, 1.0])
    asked = ["retokenisation", str(file), "--policy", str(policy), "--gradients"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 1
    assert "no group has members with different rewards" in done.output
