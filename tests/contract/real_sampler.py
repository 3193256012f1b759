"""Starts and stops the laptop's real SGLang server for the tests.

Owns the process: it runs in a process group of its own, and leaving the context ends the whole
group, whatever state it is in.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.net import free_port

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-sglang/bin/python"
LAUNCHER = ROOT / "deploy/sglang-cpu/serve.py"
START_S = 180.0
STOP_S = 10.0


def write_model(folder: Path, seed: int, *more: str, script: str = "tiny_model.py") -> Path:
    """A tiny random policy, written by a script beside this one in SGLang's own interpreter, which
    gets `more` words; a tokenizer that is in the folder stays there."""
    program = str(Path(__file__).with_name(script))
    done = subprocess.run(
        [str(_required(PYTHON)), program, str(folder), str(seed), *more],
        capture_output=True,
        text=True,
        check=False,
        env=_environment(),
    )
    assert done.returncode == 0, done.stderr
    return folder


@contextmanager
def serve(model: Path, log: Path, *options: str, text: bool = False) -> Iterator[str]:
    """The URL of a running server that loads `model`, with its tokenizer if `text` is to be
    understood; its output goes to `log`."""
    port = free_port()
    command = [
        sys.executable,
        str(_required(LAUNCHER)),
        str(model),
        str(port),
        *(() if text else ("--skip-tokenizer-init",)),
        "--context-length",
        "4096",
        *options,
    ]
    _required(PYTHON)
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, start_new_session=True, env=_environment()
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(url, process, log)
        yield url
    finally:
        _stop(process)


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"SGLang ended at its start:\n{_tail(log)}"
        try:
            with urllib.request.urlopen(url + "/ready", timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            pass
        time.sleep(0.5)
    raise AssertionError(f"SGLang was not ready after {START_S:.0f} s:\n{_tail(log)}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    # Schedulers and detokenizers can outlive their parent for a moment.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _required(path: Path) -> Path:
    assert path.exists(), f"{path} is not there: run make setup"
    return path


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def _tail(log: Path) -> str:
    return log.read_text(errors="replace", encoding="utf-8")[-4000:]
