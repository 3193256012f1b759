"""Rewards that a verification's command writes into files."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from toolsvc.tools.swe.verifying.reward_files import (
    MOST_BYTES,
    NoReward,
    clearing,
    reading,
    reward_of,
)
from toolsvc.tools.swe.verifying.verification_file import VerificationFile


def found(*paths: Path) -> float:
    """The reward that files hold, by the commands that read them."""
    read = [
        (str(path), subprocess.run(["bash", "-c", reading(str(path))], capture_output=True).stdout)
        for path in paths
    ]
    return reward_of(read)


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("1\n", 1.0), ("0", 0.0), (" 0.25 ", 0.25),
        ('{"reward": 0.5, "speed": 7}', 0.5), ('{"share": 1}', 1.0),
    ],
)  # fmt: skip
def test_a_reward_is_read(tmp_path: Path, text: str, reward: float) -> None:
    (tmp_path / "a 'b'").write_text(text, encoding="utf-8")
    assert found(tmp_path / "none", tmp_path / "a 'b'") == reward


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not a number"), ("passed", "is not a number"), ("true", "no number"),
        ("NaN", "no number"), ("1e999", "no number"), ("1" + "0" * 400, "no number"),
        ("[1]", "no number"), ('{"a": 1, "b": 1}', "no number"), ('{"reward": "1"}', "no number"),
        ("1.01", "not from 0 to 1"), ("-1", "not from 0 to 1"),
        ("[" * 10_000, "is not a number"), ("1" + " " * MOST_BYTES, "more than"),
    ],
)  # fmt: skip
def test_what_is_no_reward_is_said(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "r").write_text(text, encoding="utf-8")
    with pytest.raises(NoReward, match=says):
        found(tmp_path / "r")


def test_two_files_have_to_agree(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1", encoding="utf-8")
    (tmp_path / "b").write_text('{"reward": 1.0}', encoding="utf-8")
    assert found(tmp_path / "a", tmp_path / "b") == 1.0
    (tmp_path / "b").write_text("0", encoding="utf-8")
    with pytest.raises(NoReward, match="the rewards differ"):
        found(tmp_path / "a", tmp_path / "b")
    with pytest.raises(NoReward, match="no reward in"):
        found(tmp_path / "c")


def test_only_a_plain_file_counts(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1", encoding="utf-8")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "lost").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    for name in ("link", "lost", "folder"):
        with pytest.raises(NoReward, match="not a plain file"):
            found(tmp_path / name, tmp_path / "a")


def test_planted_files_are_removed_before_the_tests(tmp_path: Path) -> None:
    paths = [str(tmp_path / one) for one in ("logs/deep/r.txt", "planted", "link", "folder")]
    (tmp_path / "planted").write_text("1", encoding="utf-8")
    (tmp_path / "link").symlink_to("planted")
    (tmp_path / "folder/inner").mkdir(parents=True)
    done = subprocess.run(["bash", "-c", clearing(paths) + f"echo 1 > {paths[0]}"])
    assert done.returncode == 0
    assert found(*map(Path, paths)) == 1.0


BASE = {"command": "x", "report": "reward_files", "reward_files": ["/logs/reward.txt"]}


@pytest.mark.parametrize(
    "change",
    [
        {"report": "pytest"}, {"reward_files": []}, {"fail_to_pass": ["a"]},
        {"expected": {"a": "PASSED"}}, {"reward_files": ["../x"]}, {"reward_files": ["."]},
    ],
)  # fmt: skip
def test_settings_that_contradict(change: dict[str, Any]) -> None:
    assert VerificationFile.model_validate(BASE).wanted == {}
    with pytest.raises(ValidationError):
        VerificationFile.model_validate({**BASE, **change})
