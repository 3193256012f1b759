"""`toolsvc serve --until-eof`: a service that ends with whoever holds its standard input."""

import subprocess
from pathlib import Path

import pytest

from tests.integration.toolsvc.conftest import SERVE

pytestmark = pytest.mark.quick

PIPE = subprocess.PIPE


@pytest.mark.parametrize("more", [(), ("--workers", "2")])
def test_it_ends_when_standard_input_does(tmp_path: Path, more: tuple[str, ...]) -> None:
    command = [*SERVE, "finish", "--until-eof", "--listen", f"unix:{tmp_path}/sock", *more]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) as process:
        assert process.stdout.readline().startswith("serving finish")
        _, said = process.communicate("what is said there means nothing\n", timeout=20)
    assert process.returncode == 0, said
    assert "Traceback" not in said


def test_what_has_no_end_is_refused() -> None:
    command = [*SERVE, "finish", "--until-eof", "--listen", "127.0.0.1:0"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.startswith("toolsvc: --until-eof: standard input has to be a pipe")
