"""The driver of `bench gpu`: a line a stage, whatever becomes of the process that runs it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.cli import app
from bench.gpu import driver

pytestmark = pytest.mark.quick

WORKER = """
import json, os, sys, time
for name in sys.argv[1:]:
    if name == "--small":
        continue
    if name == "dies":
        sys.stderr.write("out of memory\\n")
        os._exit(9)
    if name == "hangs":
        time.sleep(60)
    kind = "failed" if name == "fails" else "figures"
    print(json.dumps({"stage": name, kind: os.getpid()}), flush=True)
    if name == "fails":
        sys.exit(1)
"""


@pytest.fixture
def worker(tmp_path: Path) -> list[str]:
    file = tmp_path / "worker.py"
    file.write_text(WORKER, encoding="utf-8")
    return [sys.executable, str(file)]


def test_a_failure_and_a_death_stop_no_other_stage(worker: list[str]) -> None:
    names = ["one", "fails", "two", "dies", "three", "four"]
    lines = list(driver.run_stages(names, small=True, worker=worker))
    assert [line["stage"] for line in lines] == names
    assert [name for name, line in zip(names, lines, strict=True) if "failed" in line] == [
        "fails",
        "dies",
    ]
    assert "status 9" in lines[3]["failed"]
    assert lines[3]["stderr"] == ["out of memory"]
    processes = [line["figures"] for line in lines if "figures" in line]
    assert processes[2] == processes[3]
    assert len(set(processes)) == 3  # a new process after each failure


def test_a_stage_that_hangs_is_ended(worker: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "STAGE_LIMIT_S", 0.5)
    lines = list(driver.run_stages(["hangs", "one"], small=False, worker=worker))
    assert "longer than" in lines[0]["failed"]
    assert "figures" in lines[1]


def test_the_command_names_its_stages_and_refuses_others() -> None:
    listed = CliRunner().invoke(app, ["gpu", "--list"])
    assert listed.exit_code == 0
    assert "parity" in listed.output
    refused = CliRunner().invoke(app, ["gpu", "partiy"])
    assert refused.exit_code == 2
    assert "partiy" in refused.output
