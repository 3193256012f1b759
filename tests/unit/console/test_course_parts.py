"""Lock, leftovers, half-made things, who is at an address, and the state that is told."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from console.asked.plan import Kind, Maker
from console.course import leftovers
from console.course.lock import only_console
from console.course.made import MADE, making, there
from console.course.state import State, state_of
from console.errors import ConsoleError, NothingStarted, ProcessFailed, Taken
from console.machine.listeners import holder, is_here, sampler_at, service_at
from console.machine.pids import pid_space
from console.machine.processes import created
from console.record.course import Began, CourseRecord, Ended, ProcessRecord
from console.record.run import RunFiles
from tests.support.net import free_port

HERE = socket.gethostname()
SPACE = pid_space()


# --- The lock


def test_a_second_console_is_told_who_has_the_run(tmp_path: Path) -> None:
    with only_console(tmp_path):
        said = pytest.raises(Taken, match=f"process {os.getpid()} on {HERE}")
        with said as caught, only_console(tmp_path):
            raise AssertionError("two consoles have one run")
        assert caught.value.status == 5
    with only_console(tmp_path):
        pass


def test_a_lock_tells_when_its_folder_is_gone_or_another(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with only_console(run) as held:
        assert not held.is_gone()
        shutil.rmtree(run)
        assert held.is_gone()
        with only_console(run) as other:
            assert held.is_gone()
            assert not other.is_gone()
    with only_console(run) as held:
        run.rename(tmp_path / "elsewhere")
        run.touch()
        assert held.is_gone()


def test_what_a_dead_console_left_keeps_nobody_out(tmp_path: Path) -> None:
    (tmp_path / "console").mkdir()
    (tmp_path / "console/console.lock").write_text("{half a", encoding="utf-8")
    with only_console(tmp_path):
        found = json.loads((tmp_path / "console/console.lock").read_text(encoding="utf-8"))
        assert found["pid"] == os.getpid()


@pytest.mark.parametrize("below", ["", "run", "run/of/mine"])
def test_a_file_where_the_run_would_be_is_named(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.touch()
    said = pytest.raises(NothingStarted, match=rf"{file} is a file: .*--folder")
    with said, only_console(file / below):
        raise AssertionError("a file is no folder")


# --- What a killed console left


def _record(pid: int, at: float, host: str = HERE) -> CourseRecord:
    began = Began(
        at=0.0, pid=1, created=0.0, argv=[], recipe="", overrides=[], host=host, space=SPACE
    )
    process = ProcessRecord(
        name="engine", what="", command="", state="started", pid=pid, created=at
    )
    return CourseRecord(starts=(began,), processes=(process,))


@contextmanager
def _hearing(on_sigterm: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that evaluates this at SIGTERM; it listens once it is given."""
    code = (
        "import signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: {on_sigterm})\n"
        "print(flush=True); input()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", code], start_new_session=True, stdin=pipe, stdout=pipe
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process


PARENT = (
    "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c',"
    "'import time; time.sleep(100)']); print(child.pid, flush=True); input()"
)


@contextmanager
def _leader() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """(a process that leads a session, the pid of its child)."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as leader:
        child = int(leader.stdout.readline())
        try:
            yield leader, child
        finally:
            with suppress(ProcessLookupError):
                os.killpg(leader.pid, signal.SIGKILL)


def test_another_process_under_the_same_number_is_left_alone() -> None:
    with _leader() as (leader, child):
        record = _record(leader.pid, created(leader.pid) - 10)
        assert leftovers.left_running(record) == ()
        leftovers.end(record.processes, print, told=False, grace_s=0.0)
        assert leader.poll() is None and psutil.pid_exists(child)


def test_nothing_is_known_of_another_boot_or_another_containers_pids() -> None:
    with _leader() as (leader, _child):
        record = _record(leader.pid, created(leader.pid))
        assert SPACE and leftovers.left_running(record)
        booted = replace(record.starts[0], space="another boot")
        assert leftovers.left_running(replace(record, starts=(booted,))) == ()
        elsewhere = _record(leader.pid, created(leader.pid), host="elsewhere")
        assert leftovers.left_running(elsewhere) == ()


def test_a_console_in_the_recorded_session_does_not_end_itself() -> None:
    code = (
        "import os, sys; from console.course import leftovers\n"
        "from console.machine.processes import created\n"
        "from console.record.course import ProcessRecord\n"
        "one = ProcessRecord(name='a', what='', command='', state='started', pid=os.getsid(0),"
        " created=created(os.getsid(0)))\n"
        "leftovers.end([one], print, told=False, grace_s=0.0)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as process:
        assert process.wait(30) == 0


def test_who_was_told_by_the_kernel_is_not_told_twice() -> None:
    with _hearing("sys.exit(7)") as process:
        record = _record(process.pid, created(process.pid))
        leftovers.end(record.processes, print, told=True, grace_s=0.5)
        assert process.wait(5) == -signal.SIGKILL  # its time was over


def test_a_learner_has_time_for_its_checkpoint_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leftovers, "GRACE_S", 0.0)
    monkeypatch.setattr(leftovers, "SAY_S", 0.0)
    with _hearing("(time.sleep(0.5), sys.exit(7))") as process:
        (one,) = _record(process.pid, created(process.pid)).processes
        said: list[str] = []
        leftovers.end([replace(one, name="learner")], said.append, told=False)
        assert process.wait(5) == 7
        assert f"still waiting for learner ({process.pid})" in said[0]


def test_children_of_a_leader_that_is_gone_are_ended() -> None:
    with _leader() as (leader, child):
        record = _record(leader.pid, created(leader.pid))
        leader.kill()
        leader.wait()
        left = leftovers.left_running(record)
        assert [one.name for one in left] == ["engine"]
        leftovers.end(left, print, told=True, grace_s=5.0)
        assert not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie"


# --- What was being made


def _maker(makes: Path) -> Maker:
    return Maker(kind="prepare", name="rows", makes=makes)


def test_what_was_being_made_is_not_there_and_its_half_is_moved_aside(tmp_path: Path) -> None:
    made = tmp_path / "rows.jsonl"
    maker = _maker(made)
    with pytest.raises(RuntimeError), making(tmp_path, maker, {}):
        made.write_text("half", encoding="utf-8")
        raise RuntimeError("killed")
    assert not there(tmp_path, [maker])(made)
    with making(tmp_path, maker, {}):
        assert not made.exists()
        made.write_text("whole", encoding="utf-8")
    assert there(tmp_path, [maker])(made)
    assert (tmp_path / "rows.jsonl.unfinished").read_text(encoding="utf-8") == "half"


@pytest.mark.parametrize("text", ["", '{"makes": "ro', "[]", '{"settings": {}}'])
def test_a_note_that_cannot_be_parsed_is_of_an_unfinished_maker(tmp_path: Path, text: str) -> None:
    made = tmp_path / "rows.jsonl"
    maker = _maker(made)
    with making(tmp_path, maker, {}):
        made.write_text("half", encoding="utf-8")
    (note,) = (tmp_path / MADE).iterdir()
    note.write_text(text, encoding="utf-8")
    assert not there(tmp_path, [maker])(made)
    with making(tmp_path, maker, {}):
        made.write_text("whole", encoding="utf-8")
    assert there(tmp_path, [maker])(made)
    assert (tmp_path / "rows.jsonl.unfinished").read_text(encoding="utf-8") == "half"


@pytest.mark.parametrize("kind", ["prepare", "render"])
def test_what_the_user_puts_where_a_maker_failed_is_the_users(tmp_path: Path, kind: Kind) -> None:
    made = tmp_path / "rows.jsonl"
    maker = replace(_maker(made), kind=kind)
    with pytest.raises(ConsoleError), making(tmp_path, maker, {}):
        made.write_text("half", encoding="utf-8")
        raise ProcessFailed("rows ended with exit code 1", exit_code=1)
    assert (
        not made.exists()
        and (tmp_path / "rows.jsonl.unfinished").read_text(encoding="utf-8") == "half"
    )
    made.write_text("mine", encoding="utf-8")
    assert there(tmp_path, [maker])(made)


def test_what_an_imitation_left_is_for_its_next_start(tmp_path: Path) -> None:
    maker = replace(_maker(tmp_path / "warm"), kind="sft")
    with pytest.raises(ConsoleError), making(tmp_path, maker, {}):
        maker.makes.mkdir()
        raise ProcessFailed("sft ended with exit code 1", exit_code=1)
    assert maker.makes.is_dir() and not there(tmp_path, [maker])(maker.makes)


# --- Who is at an address


class _Page(http.server.BaseHTTPRequestHandler):
    answer = (200, "<html>hello</html>")

    def do_GET(self) -> None:
        status, text = self.answer
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_args: object) -> None:
        """Tests are quiet."""


@contextmanager
def _web(status: int, text: str) -> Iterator[int]:
    page = type("Page", (_Page,), {"answer": (status, text)})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("status", "text", "who"),
    [
        (200, '{"model_path": "/policy", "weight_version": "v0-1"}', "right"),
        (200, "<html>hello</html>", "stranger"),
        (200, "[]", "stranger"),
        (404, "", "stranger"),
    ],
)
async def test_a_sampler_is_known_by_what_it_says_of_its_model(
    status: int, text: str, who: str
) -> None:
    with _web(status, text) as port:
        found = await sampler_at(f"http://127.0.0.1:{port}/")
    assert found.who == who
    assert bool(found.why) == (who == "stranger")


async def test_nobody_is_nobody() -> None:
    port = free_port()
    assert (await sampler_at(f"http://127.0.0.1:{port}")).who == "nobody"
    assert (await service_at(f"grpc:127.0.0.1:{port}")).who == "nobody"
    assert (await service_at(f"http://127.0.0.1:{port}/health")).who == "nobody"


async def test_a_web_server_is_no_grpc_service_and_is_named() -> None:
    with _web(200, "hello") as port:
        assert (await service_at(f"grpc:127.0.0.1:{port}")).who == "stranger"
        assert (await service_at(f"http://127.0.0.1:{port}/")).who == "right"
        assert f"process {os.getpid()}" in holder(f"127.0.0.1:{port}")


def test_addresses_of_this_machine() -> None:
    assert is_here("127.0.0.1:1") and is_here("localhost:1") and is_here("unix:/tmp/socket")
    assert not is_here("192.0.2.1:1")
    assert not is_here("no-such-host.invalid:1")


# --- The state


STARTED = _record(7, 70.0)
ENDS = {0: "done", 1: "failed", 4: "failed", 130: "stopped"}


def _ended(status: int) -> CourseRecord:
    return replace(STARTED, ended=Ended(at=1.0, status=status, sentence="why"))


def _state(
    course: CourseRecord, *, here: bool = True, lives: bool = False, answers: bool = False
) -> State:
    run = RunFiles(folder=Path("/run"), name="run", course=course)
    return state_of(run, here=here, lives=lambda pid, at: lives, answers=answers)


@pytest.mark.parametrize(
    ("course", "known", "word", "status"),
    [
        *((_ended(code), {}, word, code) for code, word in ENDS.items()),
        (STARTED, {"lives": True}, "running", 0),
        (STARTED, {}, "killed", 1),
        (STARTED, {"here": False, "answers": True}, "running", 0),
        (STARTED, {"here": False}, "unknown", 1),
        (CourseRecord(), {"answers": True}, "running", 0),
        (CourseRecord(), {}, "unknown", 1),
    ],
)
def test_the_state_follows_from_course_process_and_engine(
    course: CourseRecord, known: dict[str, bool], word: str, status: int
) -> None:
    found = _state(course, **known)
    assert (found.word, found.status) == (word, status)
    assert found.sentence == "why" or course.ended is None
