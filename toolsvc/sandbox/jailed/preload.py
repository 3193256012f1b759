"""Third-party packages: where they are found, and importing some before there are sessions.

What the zygote has imported, every session shares without importing it again. What such a
module drew from the system's randomness at import would be shared too: `reseed` gives each
session its own.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterable

_OF_VERSION = re.compile(r"/python(\d+\.\d+)(?:/|$)")


class UnusablePackages(Exception):
    """The operator's settings cannot work; the message is one sentence with the fix."""


def find_packages(folders: Iterable[str]) -> None:
    """Lets imports find what is in `folders`, after the standard library."""
    version = ".".join(map(str, sys.version_info[:2]))
    for folder in folders:
        made_for = _OF_VERSION.search(folder)
        if made_for and made_for.group(1) != version:
            raise UnusablePackages(
                f"the packages in {folder} are for Python {made_for.group(1)} and the sandbox's "
                f"interpreter {sys.executable} is {version}: name packages for {version}, or an "
                f"interpreter of version {made_for.group(1)} with --sandbox-python"
            )
        sys.path.append(folder)


def preload(modules: Iterable[str]) -> None:
    """Imports them. They must not start threads, since a process with threads cannot be forked.
    Environment variables that they set are removed: sessions have those of the jail alone."""
    before = dict(os.environ)
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:
            raise UnusablePackages(
                f"{name} cannot be imported by the sandbox's interpreter {sys.executable} "
                f"({type(error).__name__}: {error}): name the folder of packages that has it, for "
                f"Python {sys.version_info[0]}.{sys.version_info[1]}"
            ) from error
    os.environ.clear()
    os.environ.update(before)
    if len(os.listdir("/proc/self/task")) > 1:
        raise UnusablePackages(
            f"one of {', '.join(modules)} starts threads when imported: do not preload it"
        )


def reseed() -> None:
    """Called in a new session. Python's own `random` reseeds itself after a fork."""
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()
    sympy = sys.modules.get("sympy.core.random")
    if sympy is not None:
        sympy.rng.seed()
