"""One learner a folder, whatever a dead one left there."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from learner.errors import FolderError, TakenError
from learner.lock import FILE_NAME, only_learner

HOLDER = """
import sys, time
from pathlib import Path
from learner.lock import only_learner
with only_learner(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def start_holder(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDER, str(folder)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def test_another_process_is_named_and_its_death_frees_the_folder(tmp_path: Path) -> None:
    run = tmp_path / "not" / "yet"
    with start_holder(run) as holder:
        with (
            pytest.raises(TakenError, match=f"process {holder.pid} on .* since 20") as caught,
            only_learner(run),
        ):
            pass
        assert caught.value.status == 5
        holder.send_signal(signal.SIGKILL)
    left = (run / FILE_NAME).read_text(encoding="utf-8")
    assert json.loads(left)["pid"] == holder.pid  # what a dead process leaves keeps nobody out
    with only_learner(run) as doubt:
        assert doubt is None
        assert json.loads((run / FILE_NAME).read_text(encoding="utf-8"))["pid"] == os.getpid()
    with only_learner(run):
        pass


@pytest.mark.parametrize("left", ["{", '{"pid": 1}', "\udcff"])
def test_a_file_that_says_nothing_does_not_matter(tmp_path: Path, left: str) -> None:
    (tmp_path / FILE_NAME).write_text(left, errors="surrogateescape", encoding="utf-8")
    with only_learner(tmp_path):
        (tmp_path / FILE_NAME).write_text(left, errors="surrogateescape", encoding="utf-8")
        with pytest.raises(TakenError, match=f"works in {tmp_path}:"), only_learner(tmp_path):
            pass


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(FolderError, match="cannot be written"), only_learner(tmp_path / "file"):
        pass
    (tmp_path / "run" / FILE_NAME).mkdir(parents=True)
    with pytest.raises(FolderError, match=r"another run\.folder"), only_learner(tmp_path / "run"):
        pass

    def refuse(*_args: object, **_options: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(FolderError, match="Read-only file system"), only_learner(tmp_path):
        pass


def test_a_file_system_without_locks_is_said_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unable(*_args: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unable)
    with only_learner(tmp_path) as doubt:
        assert doubt is not None
        assert "No locks available" in doubt
