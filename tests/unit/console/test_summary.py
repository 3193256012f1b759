"""summary.json: means over seeds, standard errors, the control apart; lines for a terminal."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from console.record.course import Began, CourseLog, ProcessRecord
from console.record.run import read_runs
from console.redact import GONE
from console.report.figures import figures
from console.report.writing import dumps, write
from tests.support import run_folders
from tests.support.run_folders import evaluation, lines


def summary(*runs: Path) -> dict[str, Any]:
    found = json.loads(dumps(figures(read_runs(runs), output=runs[0] / "report.html")))
    assert isinstance(found, dict)
    return found


def ends(suite: dict[str, Any], way: str) -> tuple[float, float]:
    return suite[way]["before"]["mean"], suite[way]["after"]["mean"]


@pytest.fixture
def seeds(tmp_path: Path) -> list[Path]:
    return [
        run_folders.whole(tmp_path / "1", after=0.9),
        run_folders.whole(tmp_path / "2", after=1.0, seed=2),
        run_folders.whole(tmp_path / "control", after=0.3, rate=0.0),
    ]


def test_means_are_over_the_seeds_and_not_the_control(seeds: list[Path]) -> None:
    found = summary(*seeds)
    assert list(found["suites"]) == ["heldout", "withheld", "unseen-wordings"]
    assert ends(found["suites"]["heldout"], "sampled") == (0.2, 0.95)
    assert ends(found["suites"]["heldout"], "greedy") == (0.25, 0.95)
    assert [(run["seed"], run["control"]) for run in found["runs"]] == [
        (1, False), (2, False), (1, True),
    ]  # fmt: skip
    assert ends(found["runs"][0]["suites"]["heldout"], "sampled") == (0.2, 0.9)
    assert ends(found["runs"][2]["suites"]["heldout"], "sampled") == (0.2, 0.3)
    assert [run["verdict"] for run in found["runs"]] == ["rose", "rose", "rose"]
    assert found["suites"]["heldout"]["n"] == 1024


def test_a_run_that_was_not_evaluated_again_has_no_after(seeds: list[Path]) -> None:
    lines(seeds[0] / "evaluations.jsonl", [evaluation("heldout-sampled", 0, 0.2)])
    found = summary(*seeds[:2])
    assert found["suites"]["heldout"]["sampled"]["after"] is None
    assert found["runs"][0]["suites"]["heldout"]["greedy"] is None
    assert ends(found["runs"][1]["suites"]["heldout"], "sampled") == (0.2, 1.0)
    assert found["verdict"] == "too early"
    assert "cannot be taken together" in found["why"]


def test_what_is_handed_on_holds_no_secret_and_its_commands_still_work(tmp_path: Path) -> None:
    secret = "hunter2-Zq two words"
    run = run_folders.whole(tmp_path / "home" / "oda")
    url = f"http://u:{secret.split()[0]}@127.0.0.1:9"
    argv = ["toolwright", "run", "/home/oda/r.toml", "--set", f"tools.judge.api_key={secret}"]
    with CourseLog(run) as log:
        began = Began(
            at=2.0, pid=1, created=1.0, argv=argv, recipe="/home/oda/r.toml", overrides=[]
        )
        log.began(began)
        command = shlex.join(("judge", "--token", secret, "--pad_token", "<pad>"))
        log.process(ProcessRecord(name="judge", what="judges", command=command, state="started"))
        log.ended(1, f"judge ended with exit code 1: password={secret.split()[0]}")
    tools = {"judge": {"service": url, "api_key": secret, "argv": ["--pass", secret], "n": None}}
    told = {"recipe": "/home/oda/r.toml", "shared": {"tools": tools}, "engine": {}}
    (run / "engine.resolved.json").write_text(json.dumps(told), encoding="utf-8")
    output = tmp_path / "report.html"
    write((run,), output)
    for text in (
        output.read_text(encoding="utf-8"),
        (tmp_path / "summary.json").read_text(encoding="utf-8"),
    ):
        assert "hunter2" not in text and "two words" not in text
        assert "/home/oda/r.toml" in text and "127.0.0.1:9" in text
    found = summary(run)
    assert found["settings"]["values"]["tools.judge.n"] == "null"
    assert "judge ended with exit code 1" in str(found["remarks"])
    assert shlex.split(found["processes"][-1]["command"])[-3:] == [GONE, "--pad_token", "<pad>"]


@pytest.mark.parametrize(("highest", "shares"), [(1.0, True), (1.0 + 1e-9, False)])
def test_a_mean_is_a_share_only_where_each_reward_is(
    tmp_path: Path, highest: float, shares: bool
) -> None:
    run = run_folders.whole(tmp_path / "a", after=0.9)
    file = run / "evaluations.jsonl"
    found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    file.write_text("", encoding="utf-8")
    lines(file, [{**one, "lowest": 0.0, "highest": highest} for one in found])
    said = "Held-out success rose from 20% to 90%"
    shaped = "Held-out success: mean reward rose from 0.2 to 0.9"
    assert summary(run)["headline"] == (said if shares else shaped)


def test_few_questions_show_no_difference(tmp_path: Path) -> None:
    run = run_folders.whole(tmp_path / "a", after=0.9)
    few = [
        evaluation("heldout-sampled", at, mean, n=4, stderr=error)
        for at, mean, error in ((0, 0.75, 0.22), (40, 1.0, 0.0))
    ]
    (run / "evaluations.jsonl").write_text("", encoding="utf-8")
    lines(run / "evaluations.jsonl", few)
    assert summary(run)["headline"] == (
        "Held-out success: no difference that 4 questions can show, 75% before, 100% after"
    )
