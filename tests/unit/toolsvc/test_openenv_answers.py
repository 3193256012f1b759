"""Answers of an OpenEnv server that are not the protocol."""

from __future__ import annotations

import json

import pytest

from toolsvc.sources.openenv.episode import NotOpenEnv, read_answer

pytestmark = pytest.mark.quick


def answer(reward: str) -> str:
    return f'{{"type": "observation", "data": {{"observation": {{"a": "b"}}, "reward": {reward}}}}}'


@pytest.mark.parametrize("reward", ["NaN", "-1e999", "1" + "0" * 400, '"1"'])
def test_a_reward_that_no_double_holds_is_refused(reward: str) -> None:
    with pytest.raises(NotOpenEnv, match="its reward is"):
        read_answer(answer(reward))


@pytest.mark.parametrize("reward", [None, 0, 0.5, -3])
def test_another_reward_is_read(reward: float | None) -> None:
    assert read_answer(answer(json.dumps(reward))).reward == reward
