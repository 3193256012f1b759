"""An eleventh repository: a real project, as it was published before a published fix.

    python -m toolwright.script world/published.py --output published

isodate 0.6.0 raises TypeError on Python 3.10 and newer where a duration from a text is added to a
date; 0.6.1 fixes it. The repository is the first wheel's package, and the second's tests are among
the hidden ones. pip fetches both, and six, which they need: the versions and the hashes below and
nothing else. Wheels are archives: nothing of them runs but in the tool's boxes.

The project's tests run in a process of their own, and what the fix is about is asked once more from
outside (published.txt): a report that is forged in that process does not count.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from toolwright.script import Output

from .build import write_repository, write_verification
from .problems import HERE, SourceFile, read

WHEELS = {
    "isodate==0.6.0": "aa4d33c06640f5352aca96e4b81afd8ab3b47337cc12089822d6f322ac772c81",
    "isodate==0.6.1": "0751eece944162659049d35f4f549ed815792b38793f07cf73381c1c87cbed96",
    "six==1.16.0": "8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254",
}
BEFORE, AFTER, NEEDED = WHEELS
_SECONDS = 180
_TESTS = "isodate/tests/test_duration.py"
PUBLISHED = read(HERE / "published.txt")


class CannotFetch(RuntimeError):
    """The message says the fix."""


def fetch(folder: Path) -> None:
    """The wheels, into `folder`. Raises CannotFetch."""
    wanted = folder / "wanted.txt"
    for one, sha in WHEELS.items():  # one by one: no resolver takes two versions of a project
        wanted.write_text(f"{one} --hash=sha256:{sha}\n", encoding="utf-8")
        words = ("download", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes")
        command = [sys.executable, "-m", "pip", *words, "--dest", str(folder), "-r", str(wanted)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            raise CannotFetch(_unfetched(one, f"no answer within {_SECONDS} s")) from None
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise CannotFetch(_unfetched(one, said[-1] if said else done.stderr.strip()[-300:]))


def _unfetched(wheel: str, why: str) -> str:
    return (
        f"{wheel} cannot be fetched from the package index: {why}. Connect this machine, or name "
        "an index that has it in PIP_INDEX_URL; the ten other repositories need none"
    )


def write_world(folder: Path, wheels: Path) -> None:
    """Repository and verification, as build.py writes them."""
    tree = [*_package(wheels, BEFORE), *_package(wheels, NEEDED)]
    write_repository(folder / "repositories" / f"{PUBLISHED.name}.tar", tree)
    tests = [file for file in _package(wheels, AFTER) if file.path == _TESTS]
    write_verification(folder / "verifications" / PUBLISHED.name, PUBLISHED, tests)


def _package(wheels: Path, wheel: str) -> Iterator[SourceFile]:
    """The Python files of a wheel."""
    name, _, version = wheel.partition("==")
    with ZipFile(wheels / f"{name}-{version}-py2.py3-none-any.whl") as archive:
        for path in archive.namelist():
            if path.endswith(".py"):
                yield SourceFile(path=path, text=archive.read(path).decode("utf-8"))


def main(*, output: Output) -> None:
    """Fetch isodate, and write it as a task."""
    with TemporaryDirectory(prefix="wheels-") as wheels:
        try:
            fetch(Path(wheels))
        except CannotFetch as error:
            sys.exit(f"published.py: {error}")
        write_world(output, Path(wheels))
    print(f"isodate 0.6.0: {output}")
