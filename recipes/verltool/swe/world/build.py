"""Writes what the `swe` tool serves: a repository and a verification for each problem.

    python -m toolwright.script world/build.py --output world

    world/repositories/pages.tar                 the tree with the bug, and the tests that one sees
    world/verifications/pages/verification.toml  which hidden tests must pass
    world/verifications/pages/files/tests/...    those tests

The same bytes every time. A repository appears when it is whole.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path

from toolwright.script import Output

from .problems import HERE, TESTS, Repository, SourceFile, problems

SECONDS = 60
"""For all tests of a problem, which take a few on a busy machine. The paper's 300 s are for large
repositories."""


def write_world(folder: Path, every: Iterable[Repository]) -> None:
    """All of them; `folder` may hold others."""
    package = SourceFile(path="tests/__init__.py", text="")
    for one in every:
        write_repository(folder / "repositories" / f"{one.name}.tar", (*one.before, package))
        write_verification(folder / "verifications" / one.name, one)


def write_repository(archive: Path, files: Iterable[SourceFile]) -> None:
    """A tar archive of a tree, which the tool makes a repository of."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w", format=tarfile.USTAR_FORMAT) as tar:
        for file in sorted(files, key=lambda one: one.path):
            content = file.text.encode()
            member = tarfile.TarInfo(file.path)
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, io.BytesIO(content))


def write_verification(folder: Path, problem: Repository, more: Iterable[SourceFile] = ()) -> None:
    """Its settings and files: the hidden tests, what they ask by, and `more`."""
    outside = SourceFile(path="tests/outside.py", text=(HERE / "outside.py").read_text("utf-8"))
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


def main(*, output: Output) -> None:
    """Write the repositories and their hidden tests."""
    write_world(output, problems())
    print(f"{len(problems())} repositories: {output}")
