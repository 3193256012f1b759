"""`bench scripted-sampler` refuses bad input in one sentence, and ends on SIGTERM."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from bench.cli import app

COMMAND = [sys.executable, "-m", "bench.cli", "scripted-sampler"]


def run(*options: str) -> Result:
    return CliRunner().invoke(app, ["scripted-sampler", *options])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "exactly one of --script and --replies"),
        (["--script", "nowhere.py:f"], "does not exist"),
        (["--script", "cycle:1:0"], "every 1 or more"),
        (["--script", "cycle:1:5", "--jitter", "2"], "jitter is 2"),
        (["--script", "cycle:1:5", "--break-stream", "x"], "REQUEST:CHUNKS"),
        (["--script", "cycle:1:5", "--refuse", "x"], "FROM-TO"),
    ],
)
def test_bad_input_is_one_sentence(options: list[str], words: str) -> None:
    done = run(*options)
    assert done.exit_code == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_serves_and_ends_on_sigterm(tmp_path: Path) -> None:
    replies = tmp_path / "replies.json"
    replies.write_text("[[5, 6, 2]]", encoding="utf-8")
    server = subprocess.Popen(
        [*COMMAND, "--replies", str(replies), "--port", "0", "--cumulative"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        url = server.stdout.readline().split()[-1]
        request = urllib.request.Request(
            url + "/generate",
            data=json.dumps({"input_ids": [1]}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert json.load(answer)["output_ids"] == [5, 6, 2]
        server.send_signal(signal.SIGTERM)
        assert server.wait(10) == 0
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()
