"""Doubts that recorded figures raise, each by its sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.record.files import step
from console.record.restarts import tool_restarts
from console.record.run import read_run
from console.record.types import Step
from console.report.figures import figures
from console.verdict import Verdict, judge
from console.watch import doubts
from tests.support import run_folders
from toolwright.text.figures import restarted

pytestmark = pytest.mark.quick

REWARD = "./reward.py:score"


def read(number: int, **more: Any) -> Step:
    found = step(run_folders.step(number, **more))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        (
            {"stop/max_turns": 70, "stop/max_response_length": 10, "stop/answered": 48},
            "62% of step 7 ended at a limit, most at max_turns: look at task.limits.turns",
        ),
        ({"stop/max_model_length": 128}, "look at task.limits.model"),
        ({"observation_cut_fraction": 0.45}, "look at task.limits.observation"),
        (
            {"rewards_failed": 3, "reward_error": "returned nan, not a finite number"},
            f"{REWARD} failed for 3 of 128 trajectories of step 7",
        ),
        ({"nonfinite_rewards": 2}, "2 rewards of step 7 are no finite number"),
        ({"reward_s": 31.25, "generate_s": 2.0}, f"{REWARD} takes 31.2 s a trajectory"),
    ],
)
def test_a_step_raises_a_doubt(figures: dict[str, Any], words: str) -> None:
    (said,) = doubts.of_rollouts(read(7, **figures), REWARD)
    assert words in said
    assert said in doubts.of_steps([read(7, **figures)], REWARD)


@pytest.mark.parametrize(
    "figures",
    [
        {},
        {"stop/max_turns": 60},
        {"observation_cut_fraction": 0.2, "rewards_failed": 0},
        {"reward_s": 1.5, "generate_s": 0.1},
        {"reward_s": 9.0, "generate_s": 20.0},
        {"stop/max_turns": 1e300, "trajectories": 0},
    ],
)
def test_what_is_usual_raises_none(figures: dict[str, Any]) -> None:
    assert doubts.of_rollouts(read(7, **figures), REWARD) == []


def collapsed() -> list[Step]:
    well = [read(n, reward=0.6, entropy=0.5, calls=1.2, learning_rate=9e-4) for n in range(1, 9)]
    return [*well, *(read(n, reward=0.0, calls=0.0, learning_rate=9e-4) for n in range(9, 13))]


def test_a_collapse_is_a_doubt_and_the_verdict() -> None:
    sentence = (
        "collapsed at update 9, lr is 0.0009: calls a trajectory fell from 1.2 to 0, the reward, "
        "0.6 at best, fell to 0"
    )
    assert sentence in doubts.of_steps(collapsed())
    found = judge(collapsed(), ended=4)
    assert (found.verdict, found.why, found.since) == (Verdict.COLLAPSED, f"The run {sentence}.", 9)


def test_a_tool_service_that_was_restarted_is_named_with_its_log(tmp_path: Path) -> None:
    ends = [{"event": "tool_service_ended", "service": name} for name in ("shop", "sql", "shop")]
    others: list[dict[str, Any]] = [
        {"event": "said", "text": "tool_service_ended"},
        {"event": "tool_service_ended", "service": 7},
        {"event": "tool_service_ended"},
    ]
    log = run_folders.lines(tmp_path / "engine.jsonl", [*ends, *others])
    with log.open("a", encoding="utf-8") as file:
        file.write('{"event": "tool_service_ended", "serv')
    run_folders.lines(tmp_path / "learner.jsonl", [run_folders.step(1)])
    said = (
        "tools.shop ended and was restarted 2 times: look at tools.shop.log; tools.sql ended and "
        "was restarted 1 time: look at tools.sql.log"
    )
    assert restarted(tool_restarts(tmp_path)) == said
    assert restarted({"shop": 0}) == restarted(tool_restarts(tmp_path / "none")) == ""
    assert doubts.of_engine("running", {"tool_restarted": said}) == [said]
    assert doubts.of_engine("running", {"tool_restarted": ""}) == []
    assert said in figures([read_run(tmp_path, "run")], output=tmp_path)["doubts"]
