"""Checks that Python files can be served with the options that were given, without serving them.

    python -m toolsvc.commands.file_check FILE... [--set NAME.OPTION=VALUE]... [--partial]

`engine check` runs it. It imports the files, as `toolsvc serve` does, and validates the options. A
tool with options is not constructed: its constructor may read what a run makes later. A tool
without options is constructed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from toolsvc.commands.endings import one_sentence
from toolsvc.errors import StartError
from toolsvc.plugin.registry import SOURCES, TOOLS, parse_settings, registered, validated
from toolsvc.plugin.tool import Tool
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.loader import make_from_file, tools_in_file


def check_files(
    paths: Sequence[Path], settings: Mapping[str, Mapping[str, Any]], *, partial: bool = False
) -> None:
    """settings: options by the name of a tool or a source. partial: whether other files may be
    served too; then a name may be theirs.

    Raises StartError for a file that cannot be served, for a wrong or missing option, and for an
    option of an unknown name.
    """
    found = [(path, tool) for path in paths for tool in tools_in_file(path)]
    known = {tool.name for _, tool in found} | {*registered(TOOLS), *registered(SOURCES)}
    for name in settings:
        if name not in known and not partial:
            raise StartError(f"--set {name}: nothing of that name is served here that has options")
    for path, tool in found:
        given = settings.get(tool.name, {})
        if not given or isinstance(tool, Tool):
            make_from_file(path, tool, given, SandboxConfig())
        else:
            validated(tool.Config, tool.name, given)


def main(
    paths: list[Path],
    settings: Annotated[list[str] | None, typer.Option("--set")] = None,
    partial: bool = False,
) -> None:
    with one_sentence():
        check_files(paths, parse_settings(settings or []), partial=partial)


if __name__ == "__main__":
    typer.run(main)
