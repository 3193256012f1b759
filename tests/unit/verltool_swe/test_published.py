"""The project of a registry: what is fetched, and what is said where it cannot be fetched."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.recipes import Part
from toolsvc.tools.swe.verifying.verification import read_verification


def wheel(folder: Path, name: str, files: dict[str, str]) -> None:
    with zipfile.ZipFile(folder / f"{name}-py2.py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)


def test_the_repository_is_the_old_one_and_the_tests_are_the_new(
    part: Part, tmp_path: Path
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    tests = "isodate/tests/test_duration.py"
    wheel(wheels, "isodate-0.6.0", {"isodate/duration.py": "old", tests: "old", "METADATA": "x"})
    wheel(wheels, "isodate-0.6.1", {"isodate/duration.py": "new", tests: "new"})
    wheel(wheels, "six-1.16.0", {"six.py": "six"})
    part("world/published.write_world")(tmp_path, wheels)
    with tarfile.open(tmp_path / "repositories/published.tar") as archive:
        assert set(archive.getnames()) == {"isodate/duration.py", tests, "six.py"}
        assert archive.extractfile("isodate/duration.py").read() == b"old"  # type: ignore[union-attr]
    found = read_verification(tmp_path / "verifications/published", "published", 1 << 20)
    files = {entry.path: entry.content for entry in found.overlay}
    assert files[tests] == b"new"
    assert set(files) == {
        tests, "tests/__init__.py", "tests/outside.py", "tests/test_published.py"
    }  # fmt: skip


@pytest.mark.parametrize("late", [False, True])
def test_a_missing_network_says_its_fix(
    part: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    def pip(command: list[str], **_: Any) -> Any:
        assert "--require-hashes" in command
        assert "--only-binary=:all:" in command, "nothing of a package runs"
        asked = Path(command[-1]).read_text(encoding="utf-8")
        assert "sha256:" in asked
        if late:
            raise subprocess.TimeoutExpired(command, 1)
        error = "WARNING: retrying\nERROR: No matching distribution found"
        return subprocess.CompletedProcess(command, 1, "", error)

    monkeypatch.setattr(subprocess, "run", pip)
    with pytest.raises(SystemExit) as caught:
        part("world/published.main")(output=tmp_path / "out")
    said = str(caught.value)
    assert "isodate==0.6.0 cannot be fetched" in said
    assert ("no answer within" if late else "ERROR: No matching distribution found") in said
    assert "PIP_INDEX_URL; the ten other repositories need none" in said
    assert not (tmp_path / "out").exists()
