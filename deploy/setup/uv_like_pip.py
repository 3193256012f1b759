"""Runs `uv` with the settings that `pip` would use: `uv_like_pip.py ARGUMENT ...`.

uv installs an environment in a tenth of pip's time, but reads neither pip's configuration files nor
PIP_* variables. Without them it asks other indexes than the user chose, and finds the CUDA build
of torch where pip finds the CPU build. This module owns the translation and nothing else.

Invariants: what the user said to uv itself (UV_*, SSL_CERT_FILE) is left as it is; pip's own
precedence holds, because pip is asked. Standard library only. It needs pip and uv in the
environment of the Python that runs it.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

# pip's option -> uv's variable, and what separates several values there (pip's are on whitespace).
VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "no-index": ("UV_NO_INDEX", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
    "proxy": ("ALL_PROXY", " "),
}
ALIASES = {"default-timeout": "timeout", "pypi-url": "index-url"}
# Sections that `pip install` reads; a later section wins. `:env:` stands for the PIP_* variables.
SECTIONS = ("global", "install", ":env:")


def read_settings(lines: Iterable[str]) -> dict[str, str]:
    """`pip config list` as option -> value; lines of other commands' sections are passed over."""
    found: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in lines:
        name, equals, value = line.strip().partition("=")
        section, dot, option = name.partition(".")
        if equals and dot and section in found:
            option = option.lower().replace("_", "-")
            found[section][ALIASES.get(option, option)] = str(ast.literal_eval(value))
    return {key: value for section in SECTIONS for key, value in found[section].items()}


def translate(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables to add to `environment` for uv to look where pip looks."""
    # pip takes the best version of all indexes; uv by default stops at the first that has a name.
    added = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for option, (variable, separator) in VARIABLES.items():
        if settings.get(option):
            values = (os.path.expanduser(value) for value in settings[option].split())
            added[variable] = separator.join(values)
    return {name: value for name, value in added.items() if name not in environment}


def main(arguments: list[str]) -> None:
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    settings = read_settings(listing.stdout.splitlines())
    uv = Path(sys.executable).with_name("uv")
    environment = {**os.environ, **translate(settings, os.environ)}
    os.execve(uv, [str(uv), *arguments], environment)


if __name__ == "__main__":
    main(sys.argv[1:])
