"""Which changes of a submission reach for its verification; pure.

The verification lays its own files over the submission, so a changed test has no effect. A policy
that tries shall not be paid for it either: a submission that changes one of these gets 0.

- a file that the verification lays over, or what would stand in its way;
- what decides how tests are run: `PROTECTED`, or the task's own list;
- a new module that would be imported in the stead of one of the verifier's, of Python's or of the
  test runner's.

What pytest reads as its settings is no matter of names: see `settings`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from toolsvc.tools.swe.verifying.tree import Submission

PROTECTED = (
    *("conftest.py", "tox.ini", "setup.cfg", "pyproject.toml"),
    *("sitecustomize.py", "usercustomize.py", "*.pth", "*.egg-link"),
)
_RUNNERS = {"pytest", "_pytest", "pluggy", "iniconfig", "nose", "py", "xdist", "coverage"}
_NAMES = _RUNNERS | sys.stdlib_module_names - {"test"}
"""A new folder `test` is for tests."""
_PLUGIN = "pytest_"
"""Prefixes of the names of pytest's plugins, which it imports if they are installed."""
_IMPORTED = (".py", ".so")
_PACKAGE = "__init__"
_ROOTS = (".", "src", "lib")


def tampering(
    submission: Submission, overlay: Iterable[str], protected: Sequence[str] = PROTECTED
) -> list[str]:
    """The changed paths that are not the policy's to change. `overlay`: paths of the verifier's
    files; `protected`: patterns of names, or of whole paths."""
    laid_over = set(overlay)
    above = {str(parent) for path in laid_over for parent in PurePosixPath(path).parents}
    files = [PurePosixPath(path) for path in laid_over]
    modules = {str(_module(file)) for file in files if not file.name.startswith(".")}
    roots = {*_ROOTS, *above}
    return [
        path
        for path in submission.paths
        if path in laid_over
        or path in above
        or _matches(path, protected)
        or _below_one_of(path, laid_over)
        or (path in submission.added and _replaces(path, modules, above))
        or any(_has_their_name(place, roots) for place in _named(path, submission.added))
    ]


def _matches(path: str, patterns: Sequence[str]) -> bool:
    """A module of any sort, a package too, matches as its source in one file would."""
    file = PurePosixPath(path)
    places = [file]
    if file.suffix in _IMPORTED:
        places.append(PurePosixPath(f"{_module(file)}.py"))
    return any(
        fnmatchcase(place.name, one) or fnmatchcase(str(place), one)
        for place in places
        for one in patterns
    )


def _replaces(path: str, modules: set[str], above: set[str]) -> bool:
    """One of the verifier's modules, or a folder that they are in. (Python takes a package before
    a module, a compiled module before a source, and each before a folder that is no package.)"""
    file = PurePosixPath(path)
    if file.suffix not in _IMPORTED:
        return False
    module = str(_module(file))
    return module in modules or (module in above and module != str(file.parent))


def _named(path: str, added: frozenset[str]) -> list[PurePosixPath]:
    """What can be imported since this path was added: itself, and new folders above it."""
    file = PurePosixPath(path)
    found = [place for place in file.parents if str(place) in added]
    return [*found, _module(file)] if path in added and file.suffix in _IMPORTED else found


def _has_their_name(place: PurePosixPath, roots: set[str]) -> bool:
    named = place.name in _NAMES or place.name.startswith(_PLUGIN)
    return named and str(place.parent) in roots


def _module(file: PurePosixPath) -> PurePosixPath:
    """Where the module is that a file makes: a package's is its folder."""
    name = file.name.partition(".")[0]
    return file.parent if name == _PACKAGE else file.parent / name


def _below_one_of(path: str, laid_over: set[str]) -> bool:
    return any(str(parent) in laid_over for parent in PurePosixPath(path).parents)
