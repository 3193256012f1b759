"""The ten repositories of the demonstration: each a text file that a person can read.

    kind = "off by one"                     TOML: the sort of bug, and names of the hidden tests
    fail_to_pass = [...]
    pass_to_pass = [...]

    #### issue                              as its user wrote it
    #### before PATH                        a file of the repository
    #### hidden PATH                        a file of the verification, laid over the submission
    #### old PATH, #### new PATH            the recorded fix: old text and new text
    #### run                                or a command that makes it

The project of a registry (published.py) is such a file without its repository.

Hidden tests run the code in a separate process (outside.py), so that the code cannot change the
report.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..protocol import written_call

HERE = Path(__file__).resolve().parent
TESTS = "python3 -m unittest -v"
"""The repository's own, as an agent runs them."""
_SECTION = re.compile(r"^#### (issue|before|hidden|old|new|run)(?: (\S+))?\n", re.MULTILINE)


class BadProblem(ValueError):
    """The text is no problem; the message names the file and the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """path: within the repository."""

    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """solution: function calls that fix it, as an agent writes them. module: the file with the
    bug. fail_to_pass, pass_to_pass: names as the report of the tests has them."""

    name: str
    kind: str
    issue: str
    module: str
    solution: tuple[str, ...]
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    before: tuple[SourceFile, ...] = ()
    hidden: tuple[SourceFile, ...] = ()


@cache
def problems() -> tuple[Repository, ...]:
    """All ten, by name."""
    return tuple(read(file) for file in sorted((HERE / "problems").glob("*.txt")))


def read(file: Path) -> Repository:
    """Raises BadProblem."""
    head, *parts = _SECTION.split(file.read_text(encoding="utf-8"))
    sections = list(zip(parts[::3], parts[1::3], parts[2::3], strict=True))
    told = tomllib.loads(head)

    def files(kind: str) -> tuple[SourceFile, ...]:
        return tuple(
            SourceFile(path=path, text=text) for one, path, text in sections if one == kind
        )

    before, hidden = files("before"), files("hidden")
    issues = [text for kind, _, text in sections if kind == "issue"]
    fixes = list(zip(files("old"), files("new"), strict=True))
    edits = [_edit(file, old, new, before) for old, new in fixes]
    runs = [_run(text) for kind, _, text in sections if kind == "run"]
    if len(issues) != 1 or not hidden or not (edits or runs):
        raise BadProblem(f"{file}: write one issue, its hidden tests, and old and new for the fix")
    return Repository(
        name=file.stem,
        kind=told["kind"],
        issue=issues[0].strip(),
        module=fixes[0][0].path if fixes else told["module"],
        solution=(*edits, *runs),
        fail_to_pass=_names(file.stem, told["fail_to_pass"]),
        pass_to_pass=_names(file.stem, told["pass_to_pass"]),
        before=before,
        hidden=hidden,
    )


def _run(command: str) -> str:
    return written_call("execute_bash", {"command": command.strip()})


def _edit(file: Path, old: SourceFile, new: SourceFile, before: Sequence[SourceFile]) -> str:
    found, replaced = old.text.strip("\n"), new.text.strip("\n")
    if sum(one.text.count(found) for one in before if one.path == old.path) != 1:
        raise BadProblem(f"{file}: the old text does not occur once in {old.path}: give more of it")
    parameters = {"command": "str_replace", "path": old.path, "old_str": found, "new_str": replaced}
    return written_call("file_editor", parameters)


def _names(name: str, tests: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"tests.test_{name}.Test.{test}" for test in tests)
