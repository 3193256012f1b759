"""Writes what the `swe` tool serves: a repository and a verification for each problem.

    python world/build.py --output world

    world/repositories/pages.tar                 the tree with the bug, and the tests that one sees
    world/verifications/pages/verification.toml  which hidden tests must pass
    world/verifications/pages/files/tests/...    those tests

The same bytes every time. A repository appears when it is whole.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from problems import HERE, TESTS, File, Problem, problems

SECONDS = 60
"""For all tests of a problem, which take a few on a busy machine. The paper's 300 s are for large
repositories."""


def write_world(folder: Path, every: Iterable[Problem]) -> None:
    """All of them; `folder` may hold others."""
    package = File(path="tests/__init__.py", text="")
    for one in every:
        write_repository(folder / "repositories" / f"{one.name}.tar", (*one.before, package))
        write_verification(folder / "verifications" / one.name, one)


def write_repository(archive: Path, files: Iterable[File]) -> None:
    """A tar archive of a tree, which the tool makes a repository of."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w", format=tarfile.USTAR_FORMAT) as tar:
        for file in sorted(files, key=lambda one: one.path):
            content = file.text.encode()
            member = tarfile.TarInfo(file.path)
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, io.BytesIO(content))


def write_verification(folder: Path, problem: Problem, more: Iterable[File] = ()) -> None:
    """Its settings and files: the hidden tests, what they ask by, and `more`."""
    outside = File(path="tests/outside.py", text=(HERE / "outside.py").read_text("utf-8"))
    for file in (*problem.hidden, outside, *more):
        path = folder / "files" / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")
    modules = sorted({test.rsplit(".", 2)[0] for test in problem.fail_to_pass})
    settings = {
        "command": " ".join((TESTS, *modules)),
        "report": "unittest",
        "seconds": SECONDS,
        "fail_to_pass": problem.fail_to_pass,
        "pass_to_pass": problem.pass_to_pass,
    }
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in settings.items()]
    (folder / "verification.toml").write_text("".join(lines), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write the repositories and their hidden tests.")
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    given = parser.parse_args(arguments)
    write_world(given.output, problems())
    print(f"{len(problems())} repositories: {given.output}")


if __name__ == "__main__":
    main()
