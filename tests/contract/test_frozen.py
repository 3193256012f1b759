"""Contract v1 is frozen: `make breaking` fails on what breaks its readers, and on nothing else."""

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]

BREAKS = {
    "another number": ("string isolation = 11;", "string isolation = 111;"),
    "another type": ("uint32 turns_left = 7;", "string turns_left = 7;"),
    "another name": ("string action = 4;", "string text = 4;"),
    "a field less": ("bool last_step = 8;", "reserved 8;"),
    "a method less": ("rpc CancelCall(CancelCallRequest) returns (CancelCallResponse);", ""),
    "an optional field that is not": ("optional double reward = 5;", "double reward = 5;"),
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The contracts with their check, to be edited."""
    for name in ("Makefile", "buf.yaml"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(
        ROOT / "proto",
        tmp_path / "proto",
        ignore=lambda _, names: [name for name in names if name.endswith((".py", ".pyi"))],
    )
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    return tmp_path


def edit(copy: Path, old: str, new: str) -> None:
    path = copy / "proto/toolwright/tool/v1/tool.proto"
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def make(copy: Path, target: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", "-C", str(copy), target], capture_output=True, text=True)


def test_the_contracts_are_those_of_v1() -> None:
    done = make(ROOT, "breaking")
    assert done.returncode == 0, done.stdout
    assert "nothing breaks readers of v1" in done.stdout


@pytest.mark.parametrize("change", BREAKS)
def test_a_change_that_breaks_readers_fails(copy: Path, change: str) -> None:
    edit(copy, *BREAKS[change])
    done = make(copy, "breaking")
    assert done.returncode != 0
    assert "proto/toolwright/tool/v1/tool.proto" in done.stdout
    assert "v1, which is frozen" in done.stdout


def test_an_added_field_is_fine_and_is_frozen_by_the_next_baseline(copy: Path) -> None:
    added = "bool last_step = 8;\n  string note = 40;"
    edit(copy, "bool last_step = 8;", added)
    assert make(copy, "breaking").returncode == 0
    assert make(copy, "baseline").returncode == 0
    edit(copy, added, "bool last_step = 8;")
    assert make(copy, "breaking").returncode != 0


def test_a_baseline_cannot_accept_a_break(copy: Path) -> None:
    before = (copy / "proto/baseline.binpb").read_bytes()
    edit(copy, *BREAKS["another number"])
    assert make(copy, "baseline").returncode != 0
    assert (copy / "proto/baseline.binpb").read_bytes() == before
