"""`bench engine` teaches its two ways of measuring and keeps their options apart."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from bench.cli import app
from bench.errors import BenchError
from bench.makespan.recipe import admission


def test_help_teaches_both_ways() -> None:
    text = CliRunner().invoke(app, ["engine", "--help"], env={"COLUMNS": "200"}).output
    for word in ("--trajectories", "--slow-sampler", "bare aiohttp loop", "--every", "1024,4096"):
        assert word in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--trajectories", "0"], "numbers above 0"),
        (["--trajectories", "1,x"], "numbers above 0"),
        (["--trajectories", "5,"], "numbers above 0"),
        (["--trajectories", "1e3"], "numbers above 0"),
        (["--trajectories", "99999999"], "ulimit -n"),
        (["--trajectories", "8", "--every", "5"], "--every does not go with --trajectories"),
        (["--trajectories", "8", "--jitter", "0"], "--jitter does not go with --trajectories"),
        (["--chunk", "8"], "--chunk goes with --trajectories"),
        (["--slow-sampler", "10"], "--slow-sampler goes with --trajectories"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_one_sentence(
    options: list[str], words: str
) -> None:
    done = CliRunner().invoke(app, ["engine", *options])
    assert done.exit_code == 2
    assert words in done.output
    assert len(done.output.strip().splitlines()) == 1


def test_admission_is_read_from_the_engines_log() -> None:
    log = "warning: x\nadmission began at 12 ns after 34 ns of CPU\n[ 0 s] running\n"
    assert admission(log) == (12, 34)
    with pytest.raises(BenchError, match="admission"):
        admission("admission began\n")
