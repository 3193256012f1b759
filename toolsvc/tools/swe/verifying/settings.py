"""The settings file of pytest, and the option that names it; pure.

pytest looks for its settings under names that grow with its versions, beside its tests and above
them. So a submission is not kept from any name: pytest is told by an option which file it is to
take, and looks for no other. It is the one that pytest would find at the top of the tree that no
policy has seen, or none.

A command that names a file of its own (`-c`, `--rootdir`) has the last word: it is the operator's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from toolsvc.tools.files import Entry

_ANYTHING = re.compile(b"")
_FILES = {
    "pytest.toml": _ANYTHING,
    ".pytest.toml": _ANYTHING,
    "pytest.ini": _ANYTHING,
    ".pytest.ini": _ANYTHING,
    "pyproject.toml": re.compile(rb"^\s*\[\s*tool\s*\.\s*pytest\b", re.MULTILINE),
    "tox.ini": re.compile(rb"^\[pytest\]", re.MULTILINE),
    "setup.cfg": re.compile(rb"^\[tool:pytest\]", re.MULTILINE),
}
"""Settings files in pytest's order: the first that has its table decides."""
_NONE = "/dev/null"


def pytest_file(tree: Mapping[str, Entry]) -> str | None:
    """The path in a tree of the operator's; None where pytest has no settings."""
    for name, table in _FILES.items():
        if name in tree and table.search(tree[name].content):
            return name
    return None


def pytest_options(config: str | None) -> str:
    """A line of bash, for the top of the tree, that makes pytest take this file and no other. The
    tests' names are relative to the file's folder, as ever."""
    folder = "$PWD"
    file = _NONE
    if config is not None:
        path = PurePosixPath(config)
        file = f"$PWD/{path}"
        folder = f"$PWD/{path.parent}"
    words = f"-c '{file}' --rootdir='{folder}' --confcutdir='$PWD'"
    return f'export PYTEST_ADDOPTS="{words} ${{PYTEST_ADDOPTS-}}"'
