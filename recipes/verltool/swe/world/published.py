"""An eleventh repository: a real project, as it was published before a published fix.

    python world/published.py --output published

isodate 0.6.0 raises TypeError on Python 3.10 and newer where a duration from a text is added to a
date; 0.6.1 mends it. The repository is the first wheel's package, and the second's tests are among
the hidden ones. pip fetches both, and six, which they need: the versions and the hashes below and
nothing else. Wheels are archives: nothing of them runs but in the tool's boxes.

The project's tests run in a process of their own, and what the fix is about is asked once more from
outside (published.txt): whoever forges a report in that process is not believed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from build import write_repository, write_verification
from problems import HERE, File, read

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
    """The message says the mend."""


def fetch(folder: Path) -> None:
    """The wheels, into `folder`. CannotFetch."""
    wanted = folder / "wanted.txt"
    for one, sha in WHEELS.items():  # one by one: no resolver takes two versions of a project
        wanted.write_text(f"{one} --hash=sha256:{sha}\n", encoding="utf-8")
        words = ("download", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes")
        command = [sys.executable, "-m", "pip", *words, "--dest", str(folder), "-r", str(wanted)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            raise CannotFetch(_mend(one, f"no answer within {_SECONDS} s")) from None
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise CannotFetch(_mend(one, said[-1] if said else done.stderr.strip()[-300:]))


def _mend(wheel: str, why: str) -> str:
    return (
        f"{wheel} cannot be had from the package index: {why}. Connect this machine, or name an "
        "index that has it in PIP_INDEX_URL; the ten other repositories need none"
    )


def write_world(folder: Path, wheels: Path) -> None:
    """Repository and verification, as build.py writes them."""
    tree = [*_package(wheels, BEFORE), *_package(wheels, NEEDED)]
    write_repository(folder / "repositories" / f"{PUBLISHED.name}.tar", tree)
    tests = [file for file in _package(wheels, AFTER) if file.path == _TESTS]
    write_verification(folder / "verifications" / PUBLISHED.name, PUBLISHED, tests)


def _package(wheels: Path, wheel: str) -> Iterator[File]:
    """The Python files of a wheel."""
    name, _, version = wheel.partition("==")
    with ZipFile(wheels / f"{name}-{version}-py2.py3-none-any.whl") as archive:
        for path in archive.namelist():
            if path.endswith(".py"):
                yield File(path=path, text=archive.read(path).decode("utf-8"))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Fetch isodate, and write it as a task.")
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    given = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="wheels-") as wheels:
        try:
            fetch(Path(wheels))
        except CannotFetch as error:
            sys.exit(f"published.py: {error}")
        write_world(given.output, Path(wheels))
    print(f"isodate 0.6.0: {given.output}")


if __name__ == "__main__":
    main()
