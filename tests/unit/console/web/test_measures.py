"""What the pages are told of runs: curves that keep every spike, figures that follow the files."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.machine.pids import pid_space
from console.machine.processes import created
from console.record.course import Began, CourseLog, ProcessRecord
from console.record.run import read_folder
from console.report import sections as sections_module
from console.report.sections import MOST_POINTS, sections
from console.web.app import as_json
from console.web.measures.log import MOST_BYTES, NoLog, log_of
from console.web.measures.reading import Figures
from tests.support import run_folders as written
from toolwright.page.plot import Plot, extremes


def drawn(found: list[dict[str, object]], key: str) -> Plot:
    """The plot of a run's sections with this key."""
    plots = {one["key"]: one for section in found for one in section["plots"]}  # type: ignore[attr-defined]
    return plots[key]


@given(st.lists(st.floats(-1e9, 1e9), max_size=300), st.integers(4, 50))
def test_thinning_keeps_both_ends_and_the_extremes_within_its_bound(
    values: list[float], most: int
) -> None:
    kept = extremes(values, most)
    assert list(kept) == sorted(set(kept))
    assert len(kept) <= max(most, 0)
    if values:
        assert (kept[0], kept[-1]) == (0, len(values) - 1)
        assert {min(values), max(values)} <= {values[place] for place in kept}


def test_ten_thousand_steps_are_a_thousand_points_and_no_spike_is_lost(tmp_path: Path) -> None:
    rows = (written.step(n, grad_norm=99.0 if n == 7777 else 1.0) for n in range(1, 10_001))
    written.lines(tmp_path / "learner.jsonl", rows)
    found = sections([read_folder(tmp_path)])
    lengths = [len(of["x"]) for one in found for p in one["plots"] for of in p["lines"]]
    assert max(lengths) <= MOST_POINTS
    gradient = drawn(found, "gradient")["lines"][0]
    assert (gradient["x"][0], gradient["x"][-1]) == (1.0, 10_000.0)
    assert gradient["x"][gradient["y"].index(99.0)] == 7777.0


def test_figures_follow_the_files_and_are_read_once_for_each_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written.whole(tmp_path)
    figures = Figures(tmp_path, "a")
    first = figures.curves()
    assert figures.curves() is first
    assert first["state"] == figures.state
    with (tmp_path / "learner.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(written.step(written.STEPS + 1)) + "\n")
    assert figures.state != first["state"]
    assert figures.curves()["steps"] == written.STEPS + 1
    assert figures.about()["steps"] == written.STEPS + 1

    def forbidden(*_: object) -> None:
        raise AssertionError("the files are read again")

    monkeypatch.setattr("console.web.measures.reading.read_folder", forbidden)
    figures.curves(), figures.about()


def test_an_empty_folder_has_no_curve_and_a_cut_line_costs_itself(tmp_path: Path) -> None:
    figures = Figures(tmp_path, "a")
    assert figures.curves()["sections"] == []
    assert figures.about()["verdict"] == "too early"
    whole = json.dumps(written.step(1)) + "\n"
    (tmp_path / "learner.jsonl").write_text(whole + whole[:40], encoding="utf-8")
    assert figures.curves()["steps"] == 1
    assert "1 line is no metrics" in " ".join(figures.about()["remarks"])
    (tmp_path / "evaluations.jsonl").mkdir()
    assert figures.curves()["steps"] == 1, "what is no file is not there"


def test_a_run_as_a_whole_tells_its_course_its_doubts_and_no_secret(tmp_path: Path) -> None:
    written.whole(tmp_path)
    written.lines(
        tmp_path / "learner.jsonl",
        (written.step(n, masked=64, **{"stop/void": 64}) for n in range(1, written.STEPS + 1)),
    )
    resolved = tmp_path / "console.resolved.json"
    told = json.loads(resolved.read_text(encoding="utf-8"))
    told["console"]["environment"] = {"api_key": "sk-secret-of-somebody-1234"}
    resolved.write_text(json.dumps(told), encoding="utf-8")
    found = Figures(tmp_path, "a").about()
    assert found["headline"] == "Held-out success rose from 20% to 90%"
    assert (found["steps"], found["planned"]) == (written.STEPS, written.STEPS)
    assert [stage["text"] for stage in found["course"]["stages"]] == ["reinforcement learning"]
    assert found["course"]["starts"][0]["command"] == "toolwright run 'my recipes/recipe.toml'"
    assert found["course"]["ended"]["status"] == 0
    assert found["versions"]["python"] == "3.11.7"
    assert "50% of step 50 is masked (stops: answered 120, void 64, turns 8)" in found["doubts"]
    assert "console.environment.api_key" in found["settings"]["values"]
    assert "sk-secret" not in as_json(found).decode()


def test_the_list_tells_a_run_that_goes_on_from_one_that_was_killed(tmp_path: Path) -> None:
    written.whole(tmp_path)
    figures = Figures(tmp_path, "a")
    found = figures.summary()
    assert (found["word"], found["steps"], found["reward"]) == ("done", written.STEPS, 1.0)
    assert found["suites"][0]["title"] == "held out"
    assert found["suites"][0]["after"]["mean"] == 0.9
    assert found["rewards"][0] == [1, 0.02] and len(found["rewards"]) == written.STEPS
    (tmp_path / "console/course.jsonl").unlink()
    with CourseLog(tmp_path) as log:
        start = Began(
            at=1.0, pid=os.getpid(), created=created(os.getpid()), argv=(), recipe="",
            overrides=(), host=socket.gethostname(), space=pid_space(),
        )  # fmt: skip
        log.began(start)
        assert figures.summary()["word"] == "running"
        running = figures.state
        log.began(replace(start, pid=2**22 + 1))
    assert figures.state != running
    assert figures.summary()["word"] == "killed"


def test_a_run_that_was_started_by_hand_goes_on_while_its_engine_logs(tmp_path: Path) -> None:
    written.lines(tmp_path / "learner.jsonl", [written.step(1)])
    log = tmp_path / "engine.jsonl"
    log.touch()
    figures = Figures(tmp_path, "a")
    assert figures.summary()["word"] == "running"
    running = figures.state
    os.utime(log, (1.0, 1.0))
    assert figures.state != running
    assert figures.summary()["word"] == "unknown"


def test_a_log_ends_where_it_ends_and_holds_no_secret(tmp_path: Path) -> None:
    written.whole(tmp_path)
    outside = tmp_path / "elsewhere.log"
    outside.write_text("a stranger's", encoding="utf-8")
    with CourseLog(tmp_path) as log:
        for name in ("engine", "outside"):
            file = outside if name == "outside" else tmp_path / "console/logs/engine.log"
            log.process(ProcessRecord(name=name, what="", command="", state="ended", log=str(file)))
    with pytest.raises(NoLog, match="cannot be read"):
        log_of(tmp_path, "engine")
    file = tmp_path / "console/logs/engine.log"
    file.parent.mkdir()
    many = "one more line\n" * MOST_BYTES
    file.write_text(f"{many}TOOLWRIGHT_TOKEN=a-secret-word\nthe end\n", encoding="utf-8")
    found = log_of(tmp_path, "engine")
    assert found["text"].startswith("one more line\n") and found["text"].endswith("the end\n")
    assert "a-secret-word" not in found["text"]
    assert 0 < found["cut"] < file.stat().st_size
    for name in ("outside", "nobody", "../engine"):
        with pytest.raises(NoLog):
            log_of(tmp_path, name)


def test_figures_that_no_plot_takes_stand_at_the_end_and_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sections_module, "MOST_OTHERS", 3)
    strange = {f"<img src=x>\u202e{n}": float(n) for n in range(5)} | {"x" * 5000: 1.0}
    written.lines(tmp_path / "learner.jsonl", (written.step(n, **strange) for n in (1, 2)))
    *_, last = sections([read_folder(tmp_path)])
    assert (last["key"], len(last["plots"])) == ("others", 3)
    assert "more figures are in learner.jsonl" in last["plots"][-1]["note"]
