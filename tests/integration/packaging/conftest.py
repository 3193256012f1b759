"""The wheel, built once, and environments outside of the checkout that it is installed into."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SITE = Path(sysconfig.get_path("purelib"))


class Environment:
    """A Python environment with the wheel; commands run in it see nothing of the checkout."""

    def __init__(self, folder: Path, work: Path) -> None:
        self.folder = folder
        self.work = work

    def __call__(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs one of its programs in an empty folder."""
        inherited = ("HOME", "PATH", "LANG", "TMPDIR", "OMP_NUM_THREADS", "HF_HUB_OFFLINE")
        environment = {name: os.environ[name] for name in inherited if name in os.environ}
        return subprocess.run(
            [str(self.folder / "bin" / words[0]), *words[1:]],
            cwd=self.work,
            env={**environment, "COLUMNS": "80", **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the checkout, as `pip wheel` would."""
    folder = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def whole(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """With every package that this test's own environment has."""
    return _made(wheel, tmp_path_factory.mktemp("whole"), lambda site: [_beside(site)])


@pytest.fixture(scope="session")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """With what `pip install toolwright` without an extra brings, and nothing else."""

    def core(site: Path) -> Iterator[None]:
        for package in _closure(_core()):
            for entry in {Path(file).parts[0] for file in metadata.files(package) or ()}:
                if entry not in ("..", "__pycache__") and not (site / entry).exists():
                    (site / entry).symlink_to(SITE / entry)
        yield

    return _made(wheel, tmp_path_factory.mktemp("bare"), core)


def _made(
    wheel: Path, folder: Path, fill: Callable[[Path], Sequence[None] | Iterator[None]]
) -> Environment:
    environment, work = folder / "environment", folder / "work"
    work.mkdir()
    create = (sys.executable, "-m", "venv", "--without-pip", str(environment))
    subprocess.run(create, check=True, capture_output=True)
    install = ("install", "--no-deps", "--no-index", "--no-compile", "--quiet", str(wheel))
    python = environment / "bin/python"
    pip = (sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check")
    subprocess.run((*pip, *install), check=True, capture_output=True)
    (site,) = environment.glob("lib/python*/site-packages")
    list(fill(site))
    return Environment(environment, work)


def _beside(site: Path) -> None:
    """Looked into after the environment's own; its .pth files do not act."""
    (site / "beside.pth").write_text(f"{SITE}\n", encoding="utf-8")


def _core() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in project["dependencies"]]


def _closure(names: Sequence[str]) -> set[str]:
    """These packages and what they require."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            required = metadata.requires(name) or ()
        except metadata.PackageNotFoundError:
            continue  # for another platform or Python
        found.add(name)
        waiting += [re.split(r"[^\w.-]", r, maxsplit=1)[0] for r in required if "extra" not in r]
    return found
