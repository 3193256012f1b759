"""`bench tools` refuses options that do not fit before it starts a server."""

from __future__ import annotations

import pytest
from click.testing import Result
from typer.testing import CliRunner

from bench.cli import app


def run(*options: str) -> Result:
    return CliRunner().invoke(app, ["tools", *options])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--workload", "helo"], "hello, noop, sleep, stateful, mixed"),
        (["--mode", "open"], "--rate"),
        (["--grid", "other"], "there is verltool"),
        (["--target", "127.0.0.1:1", "--", "--ready", "3"], "runs already"),
        (["--compare", "nowhere.json"], "No such file"),
        (["--json", "no/such/folder/x.json"], "make it first"),
    ],
)
def test_bad_input_is_one_sentence(options: list[str], words: str) -> None:
    done = run(*options)
    assert done.exit_code == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_target_that_does_not_answer_is_named_with_the_fix() -> None:
    done = run("--target", "127.0.0.1:1")
    assert done.exit_code == 1
    assert "--target 127.0.0.1:1 does not answer" in done.stderr
    assert "toolsvc serve python" in done.stderr
