"""A run folder from a stranger gets no token, drains no engine and ends no process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
import pytest

from console.course import lock
from console.course.stopping import state, stop
from console.errors import ConsoleError
from console.machine import pids
from console.machine.processes import alive, created
from console.record.course import Began, CourseLog
from console.record.resolved import Resolved, read_resolved
from console.watch import engine
from console.watch.follow import Follower
from console.watch.status import Status
from toolwright.rpc.options import TOKEN_VARIABLE, may_have_token

pytestmark = pytest.mark.quick
ELSEWHERE = "192.0.2.7:50051"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "engine.jsonl").touch()
    return folder


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Addresses that a channel was opened to, each with the token."""
    found: list[tuple[str, str]] = []

    def note(address: str, token: str = "", *_args: object) -> grpc.aio.Channel:
        found.append((address, token))
        return grpc.aio.insecure_channel("127.0.0.1:1")

    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    for module in ("console.watch.engine", "console.course.stopping"):
        monkeypatch.setattr(f"{module}.open_channel", note)
    return found


def names(run: Path, address: str) -> None:
    (run / "engine.resolved.json").write_text(
        json.dumps({"shared": {"run": {"engine": address}}}), encoding="utf-8"
    )


@pytest.mark.parametrize(
    "address",
    [ELSEWHERE, "evil.example:50051", "localhost.evil.example:1", "0.0.0.0:50051",
     "[2001:db8::1]:1",
     "dns:evil.example:1", "dns:///evil.example:1", "ipv4:192.0.2.7:1", "127.0.0.1:1,192.0.2.7:1",
     "localhost@evil.example:1", "evil.example", "127.0.0.1"],
)  # fmt: skip
def test_the_token_leaves_for_no_address_of_the_folder(
    run: Path, dialled: list[tuple[str, str]], address: str
) -> None:
    names(run, address)
    found = state(run)
    assert any("is not queried: add --engine" in doubt for doubt in found.doubts)
    with pytest.raises(ConsoleError, match="is not queried: add --engine"):
        stop(run, print, now=False)
    assert dialled == []
    state(run, address)
    assert dialled == [(address, "secret")], "what the user typed is asked"


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:1", "localhost:1", "[::1]:1", "127.9.9.9:1", "unix:/tmp/s", "unix-abstract:s"],
)  # fmt: skip
def test_this_machine_is_asked(run: Path, dialled: list[tuple[str, str]], address: str) -> None:
    names(run, address)
    assert state(run).doubts == ()
    assert dialled == [(address, "secret")]


async def test_the_view_says_why_it_does_not_ask(run: Path, dialled: list[tuple[str, str]]) -> None:
    names(run, ELSEWHERE)
    follower = Follower(run, status := Status())
    await follower.look()
    assert dialled == [] and any(ELSEWHERE in doubt for doubt in status.doubts)
    await Follower(run, status := Status(), ELSEWHERE).look()
    assert dialled == [(ELSEWHERE, "secret")] and status.doubts == []


def test_an_address_that_was_typed_replaces_the_folders() -> None:
    told = Resolved(values={"run": {"engine": ELSEWHERE}})
    assert engine.address_of(told) == ""
    assert engine.address_of(told, ELSEWHERE) == ELSEWHERE
    assert engine.address_of(told, "10.0.0.1:1") == "10.0.0.1:1"
    assert engine.address_of(read_resolved(Path("/nowhere")), "") == ""
    assert may_have_token("10.0.0.1:1", "10.0.0.1:1") and not may_have_token("10.0.0.1:1", "")


# --- Processes


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process of this user that is no `toolwright run`."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        try:
            yield process
        finally:
            process.kill()


def claims(run: Path, victim: subprocess.Popen[bytes], **other: str) -> None:
    """The folder says that its `toolwright run` is the victim."""
    began = Began(
        at=time.time(), pid=victim.pid, created=created(victim.pid), argv=["toolwright", "run"],
        recipe="", overrides=(), host=socket.gethostname(), space=pids.pid_space(),
    )  # fmt: skip
    with CourseLog(run) as log:
        log.began(replace(began, **other))  # type: ignore[arg-type]


def spared(run: Path, victim: subprocess.Popen[bytes], sentence: str) -> None:
    for now in (False, True):
        with pytest.raises(ConsoleError, match=sentence):
            stop(run, print, now=now)
    assert victim.poll() is None and alive(victim.pid, created(victim.pid))


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({}, "is not its `toolwright run`"),
        ({"host": "elsewhere"}, "is a run of elsewhere"),
        ({"host": ""}, "is a run of an unknown machine"),
        ({"space": ""}, "or of a container there"),
        ({"space": f"{pids.pid_space().partition(' ')[0]} pid:[1]"}, "or of a container there"),
        ({"space": "another-boot pid:[4026531836]"}, "was killed and nothing of it"),
    ],
)
def test_no_process_ends_because_a_folder_names_it(
    run: Path, victim: subprocess.Popen[bytes], other: dict[str, str], sentence: str
) -> None:
    claims(run, victim, **other)
    (run / lock.FILE).touch()
    spared(run, victim, sentence)


@pytest.mark.parametrize("trick", ["symlink", "hard link", "folder"])
def test_a_lock_that_is_another_file_proves_nothing(run: Path, tmp_path: Path, trick: str) -> None:
    log = tmp_path / "victim.log"
    with (
        log.open("w", encoding="utf-8") as file,
        subprocess.Popen(["sleep", "60"], stdout=file) as victim,
    ):
        claims(run, victim)
        if trick == "symlink":
            (run / lock.FILE).symlink_to(log)
        elif trick == "hard link":
            os.link(log, run / lock.FILE)
        else:
            (run / lock.FILE).mkdir()
        try:
            spared(run, victim, "is not its `toolwright run`")
        finally:
            victim.kill()


def test_the_console_of_the_folder_is_stopped(run: Path) -> None:
    program = (
        "import sys, pathlib, signal; from console.course.lock import only_console\n"
        "with only_console(pathlib.Path(sys.argv[1])): print(flush=True); signal.pause()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(run)], stdout=subprocess.PIPE
    ) as console:
        try:
            assert console.stdout is not None and console.stdout.readline()
            claims(run, console)
            assert state(run).word == "running"
            assert stop(run, print, now=False) == f"{run} is stopped"
            assert console.wait(10) == -15
        finally:
            console.kill()
