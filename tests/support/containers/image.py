"""A small image of this machine's own programs, for a podman that can fetch none: 40 MB with their
libraries and Python's."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from pathlib import Path

_PROGRAMS = (
    *("basename", "bash", "cat", "chmod", "cp", "cut", "date", "dirname", "echo", "env", "id"),
    *("find", "git", "grep", "head", "kill", "ls", "mkdir"),
    *("mv", "pgrep", "readlink", "realpath", "rm", "sed", "sleep", "sort", "stat", "tail", "tar"),
    *("timeout", "touch", "tr", "wc", "xargs"),
)
_PYTHON = "/usr/bin/python3"
_LEFT_OUT = {"__pycache__", "dist-packages", "test", "idlelib", "lib2to3", "ensurepip"}


def write_image(target: Path) -> None:
    """The root file system as a tar archive."""
    programs = [*(f"/usr/bin/{name}" for name in _PROGRAMS), os.path.realpath(_PYTHON)]
    linked = subprocess.run(["ldd", *programs], check=True, capture_output=True, text=True).stdout
    library = subprocess.run(
        [_PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    linked += "".join(
        subprocess.run(["ldd", path], check=True, capture_output=True, text=True).stdout
        for path in map(str, Path(library, "lib-dynload").glob("*.so"))
        if re.search(r"_(ctypes|hashlib|ssl|bz2|lzma)\.", path)
    )
    with tarfile.open(target, "w") as archive:
        for name in ("bin", "lib", "lib64", "sbin"):
            if os.path.islink(f"/{name}"):
                archive.add(f"/{name}", name)
        for path in sorted({*programs, *re.findall(r"(/\S+) \(0x", linked)}):
            place = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
            archive.add(os.path.realpath(path), place)
        _link(archive, _PYTHON, os.path.basename(os.path.realpath(_PYTHON)))
        archive.add(library, library, filter=_wanted)
        for name in ("tmp", "testbed", "root", "etc", "proc", "sys", "dev"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(folder)


def _wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = os.path.basename(member.name)
    return None if name in _LEFT_OUT or name.startswith("config-") else member


def _link(archive: tarfile.TarFile, path: str, target: str) -> None:
    link = tarfile.TarInfo(path.lstrip("/"))
    link.type, link.linkname = tarfile.SYMTYPE, target
    archive.addfile(link)
