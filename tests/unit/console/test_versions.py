"""Whose commit a version names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from console.machine import versions


def test_a_wheel_within_somebodys_checkout_is_not_of_his_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / ".venv/lib/python3.11/site-packages"
    site.mkdir(parents=True)
    commit = ("commit", "-q", "--allow-empty", "-m", "theirs")
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), (*who, *commit)):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    monkeypatch.setattr(versions, "ROOT", tmp_path)
    assert len(versions.versions(())["commit"]) == 12, "a checkout tells its own"
    monkeypatch.setattr(versions, "ROOT", site)
    assert "commit" not in versions.versions(())
