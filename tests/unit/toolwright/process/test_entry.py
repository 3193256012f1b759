"""Ctrl-C while a command is still imported: one line and 130, and from `main` on as ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from toolwright.process import entry

PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from toolwright.process import entry
entry._enter("engine", "slow_command")
"""


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (
            "print('ready', flush=True)\nsignal.pause()\n",
            130,
            "engine: interrupted before it began\n",
        ),
        (
            "def main():\n"
            "    try:\n"
            "        print('ready', flush=True)\n"
            "        signal.pause()\n"
            "    except KeyboardInterrupt:\n        sys.exit('as main says')\n",
            1,
            "as main says\n",
        ),
    ],
)
def test_a_signal(tmp_path: Path, body: str, status: int, said: str) -> None:
    (tmp_path / "slow_command.py").write_text(f"import signal, sys\n{body}", encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(folder=str(tmp_path))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20)[1] == said
    finally:
        process.kill()
        process.wait()
    assert process.returncode == status


@pytest.mark.quick
@pytest.mark.parametrize(
    ("given", "spared"),
    [
        ({}, None),
        ({"no_proxy": "a"}, None),
        ({"http_proxy": ""}, None),
        ({"http_proxy": "http://p"}, "localhost,127.0.0.1,::1"),
        ({"HTTPS_PROXY": "http://p", "NO_PROXY": "a, localhost"}, "a,localhost,127.0.0.1,::1"),
        ({"all_proxy": "http://p", "no_proxy": "b", "NO_PROXY": "a"}, "b,localhost,127.0.0.1,::1"),
        ({"grpc_proxy": "http://p", "no_proxy": "*"}, "*"),
    ],
)
def test_loopback_is_added_to_no_proxy(given: dict[str, str], spared: str | None) -> None:
    environment = dict(given)
    entry.spare_loopback(environment)
    if spared is None:
        assert environment == given
    else:
        assert environment["no_proxy"] == environment["NO_PROXY"] == spared


@pytest.mark.quick
@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("engine", "engine"), ("toolwright", "engine"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("shape", ["{}.py", "{}/__init__.py", "{}/readme.txt"])
def test_a_users_file_that_hides_a_package_is_named(
    tmp_path: Path, command: str, name: str, shape: str
) -> None:
    hiding = tmp_path / shape.format(name)
    hiding.parent.mkdir(exist_ok=True)
    hiding.write_text("raise RuntimeError('a stranger is imported')\n", encoding="utf-8")
    program = f"import sys; sys.argv = [{command!r}, '--version']\n"
    program += f"from toolwright.process import entry; entry.{command}()"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path.parent,
    )
    if shape.endswith("txt"):  # a folder of data hides nothing
        assert (ended.returncode, ended.stderr) == (0, "")
        return
    assert ended.returncode == 1
    assert ended.stderr.startswith(
        f"{command}: {hiding} hides Toolwright's package {name!r}: rename"
    )
    assert len(ended.stderr.splitlines()) == 1
