"""Trajectories of another tokenizer are refused; those that name none are counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from learner.errors import DataError
from learner.intake.tokenizer_check import TokenizerCheck
from toolwright.model.model_folder import tokenizer_hash
from toolwright.types import Status, StopReason, Task, Trajectory

NAMELESS = Trajectory(
    id="g0/1",
    group_id="g0",
    index=1,
    task=Task(id="g0"),
    sequences=(),
    status=Status.COMPLETED,
    stop_reason=StopReason.ANSWERED,
    reward=0.0,
)


def test_the_first_of_another_tokenizer_is_named_with_the_mend(policy_folder: Path) -> None:
    origin = TokenizerCheck(policy_folder)
    mine = tokenizer_hash(policy_folder)
    origin.check(replace(NAMELESS, tokenizer_hash=mine))
    assert origin.sentence() is None
    with pytest.raises(DataError) as caught:
        origin.check(replace(NAMELESS, tokenizer_hash="f" * 64))
    said = str(caught.value)
    for part in ("g0/1", "ffffffffffff", mine[:12], str(policy_folder), "render.model"):
        assert part in said


def test_another_template_variable_is_another_tokenizer(policy_folder: Path) -> None:
    silent = tokenizer_hash(policy_folder, {"enable_thinking": False})
    TokenizerCheck(policy_folder, {"enable_thinking": False}).check(
        replace(NAMELESS, tokenizer_hash=silent)
    )
    with pytest.raises(DataError, match=r"the same policy\.template"):
        TokenizerCheck(policy_folder).check(replace(NAMELESS, tokenizer_hash=silent))


def test_those_without_a_hash_are_counted(policy_folder: Path, tmp_path: Path) -> None:
    origin = TokenizerCheck(policy_folder)
    origin.check(replace(NAMELESS, tokenizer_hash=tokenizer_hash(policy_folder)))
    origin.check(NAMELESS)
    origin.check(NAMELESS)
    assert str(origin.sentence()).startswith("2 of 3 trajectories name no tokenizer")
    unknown = TokenizerCheck(tmp_path)
    unknown.check(replace(NAMELESS, tokenizer_hash="f" * 64))
    assert "tokenizers were not compared" in str(unknown.sentence())
