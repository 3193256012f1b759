"""Which changes of a submission reach for its verification; pure.

The verification lays its own files over the submission, so a changed test has no effect. A policy
that tries shall not be paid for it either: whoever touches one of these gets 0.

- a file that the verification lays over, or what would stand in its way;
- what decides how tests are run: `PROTECTED`, or the task's own list;
- a new module at the top of the tree, or beside the verifier's tests, by the name of one of
  Python's or of the test runner's own, which would be imported in its stead.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from toolsvc.tools.swe.tree import Submission

PROTECTED = (
    *("conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml"),
    *("sitecustomize.py", "usercustomize.py", "*.pth", "*.egg-link"),
)
_RUNNERS = {"pytest", "_pytest", "pluggy", "iniconfig", "nose", "py", "xdist", "coverage"}
_NAMES = _RUNNERS | sys.stdlib_module_names - {"test"}
"""A new folder `test` is for tests."""
_IMPORTED = (".py", ".so")
_ROOTS = (".", "src", "lib")


def tampering(
    submission: Submission, overlay: Iterable[str], protected: Sequence[str] = PROTECTED
) -> list[str]:
    """The changed paths that are not the policy's to change. `overlay`: paths of the verifier's
    files; `protected`: patterns of names, or of whole paths."""
    laid_over = set(overlay)
    above = {str(parent) for path in laid_over for parent in PurePosixPath(path).parents}
    roots = {*_ROOTS, *above}
    return [
        path
        for path in submission.paths
        if path in laid_over
        or path in above
        or _matches(path, protected)
        or _shadows(path, submission.added, roots)
        or _below_one_of(path, laid_over)
    ]


def _matches(path: str, patterns: Sequence[str]) -> bool:
    name = PurePosixPath(path).name
    return any(fnmatchcase(name, one) or fnmatchcase(path, one) for one in patterns)


def _shadows(path: str, added: frozenset[str], roots: set[str]) -> bool:
    """By the module that the file is, or that a folder above it is, if that was not there."""
    file = PurePosixPath(path)
    modules = [file] if file.suffix in _IMPORTED else []
    return any(
        place.name.partition(".")[0] in _NAMES and str(place.parent) in roots
        for place in (*modules, *file.parents)
        if str(place) in added
    )


def _below_one_of(path: str, laid_over: set[str]) -> bool:
    return any(str(parent) in laid_over for parent in PurePosixPath(path).parents)
