"""Debian's podman for tests: the machine's program, with images and containers of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.support.containers.image import write_image

IMAGE = "localhost/small"
_CONTAINERS = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
tmp_dir = "{folder}/alive"
"""
"""What lets it run without systemd, where limits may not be raised, and beside another podman whose
`system reset` removes the common folder of what runs."""
_STORAGE = """\
[storage]
driver = "{driver}"
graphroot = "{folder}/images"
runroot = "{folder}/running"
"""


class Podman:
    """Its one image is IMAGE. `environment`: of a process that is to use it."""

    def __init__(self, folder: Path) -> None:
        for program in ("podman", "runc"):
            if shutil.which(program) is None:
                pytest.fail(f"these tests need {program}: apt-get install podman runc")
        kind = ["stat", "--file-system", "--format", "%T", str(folder)]
        below = subprocess.run(kind, check=True, capture_output=True, text=True).stdout.strip()
        driver = "vfs" if below == "overlayfs" else "overlay"
        (folder / "containers.conf").write_text(_CONTAINERS.format(folder=folder), encoding="utf-8")
        (folder / "storage.conf").write_text(
            _STORAGE.format(driver=driver, folder=folder), encoding="utf-8"
        )
        self.environment = {
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }
        self._folder = folder
        self.add_image(IMAGE)

    def add_image(self, image: str, *trees: Path) -> None:
        """`trees`: folders whose contents go over the root of the small image."""
        archive = self._folder / "image.tar"
        write_image(archive)
        with tarfile.open(archive, "a") as tar:
            held = set(tar.getnames())
            for tree in trees:
                for path in sorted(tree.rglob("*")):
                    name = str(path.relative_to(tree))
                    if name not in held:
                        tar.add(path, name, recursive=False)
        self.ask("import", "--quiet", str(archive), image)
        archive.unlink()

    def ask(self, *words: str) -> str:
        environment = {**os.environ, **self.environment}
        done = subprocess.run(
            ["podman", *words], check=False, capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def end(self) -> None:
        """Leaves nothing mounted, and nothing that only podman may delete."""
        self.ask("system", "reset", "--force")
