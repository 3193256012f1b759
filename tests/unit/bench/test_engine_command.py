"""`bench engine` refuses options that do not fit, and names the command of an old one."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from bench.cli import app
from bench.engine.processes.questions import admission
from bench.errors import BenchError


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--trajectories", "0"], "numbers above 0"),
        (["--trajectories", "5,"], "numbers above 0"),
        (["--trajectories", "1e3"], "numbers above 0"),
        (["--trajectories", "99999999"], "ulimit -n"),
        (["chess"], "the loads are steady, mixed, math, sql, deepsearch"),
        (["mixed", "--every", "30"], "--every goes with the load steady"),
        (["sql", "--concurrency", "8"], "needs a place for each trajectory"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_one_sentence(
    words: list[str], sentence: str
) -> None:
    done = CliRunner().invoke(app, ["engine", *words])
    assert done.exit_code == 2
    assert sentence in done.output
    assert len(done.output.strip().splitlines()) == 1


def test_admission_is_read_from_the_engines_log() -> None:
    log = "warning: x\nadmission began at 12 ns after 34 ns of CPU\n[ 0 s] running\n"
    assert admission(log) == (12, 34)
    with pytest.raises(BenchError, match="admission"):
        admission("admission began\n")
