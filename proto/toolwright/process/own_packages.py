"""Files of a user that have the name of one of our packages. Imports the standard library only.

A folder on PYTHONPATH comes before the installed packages, so its `engine.py` hides ours.
"""

from __future__ import annotations

import os
import sys
from importlib import util
from pathlib import Path

OURS = (
    *("toolwright", "agents", "engine", "ingress", "learner", "toolsvc"),
    *("memory", "tasks", "console", "bench"),
)
_PROTO = Path(__file__).resolve().parents[2]
_ROOTS = (_PROTO, _PROTO.parent)
"""Folders that hold our packages: one if they are installed, two in a checkout."""


def in_the_way(package: str) -> str:
    """The file or folder that an import of our package finds instead; "" if it finds ours."""
    if package not in OURS:
        return ""
    module = sys.modules.get(package)
    spec = module.__spec__ if module is not None else util.find_spec(package)
    if spec is None:
        return ""
    folders = list(spec.submodule_search_locations or ())
    if any(is_ours(folder) for folder in folders):
        return ""
    return spec.origin or (folders[0] if folders else "")


def is_ours(package_folder: str) -> bool:
    """Whether a package's folder lies where ours do."""
    return Path(package_folder).resolve().parent in _ROOTS


def sentence_for(error: ImportError) -> str:
    """The message for a file that hides the module of a failed import; "" without such a file."""
    package = (error.name or "").partition(".")[0]
    found = in_the_way(package)
    return hidden(package, found) if found else ""


def hidden(package: str, found: str) -> str:
    """The message for a hidden package. found: the file or folder that hides it."""
    folder = os.path.dirname(found)
    return (
        f"{found} hides Toolwright's package {package!r}: rename it, or take {folder} off "
        "PYTHONPATH"
    )
