"""The policy's requests: one of four functions, with R2E-Gym's names of parameters."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from toolsvc.tools.edits import NEEDED, Edit

_LONGEST = 100_000
"""Bytes of a command; the kernel takes 128 KiB in one argument of a program."""


class SweArguments(Edit):
    """A function and its parameters."""

    function: Literal["file_editor", "execute_bash", "search", "submit"]
    command: str | None = Field(
        default=None,
        description="execute_bash: what to run; file_editor: view, create, str_replace, insert or "
        "undo",
    )
    path: str | None = Field(
        default=None, description="file_editor, search: relative to the repository"
    )
    search_term: str | None = Field(default=None, description="search: a text, as it stands")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.function == "execute_bash":
            self.require(("command",), self.function)
        elif self.function == "search":
            self.require(("search_term",), self.function)
        elif self.function == "file_editor":
            if self.command not in NEEDED:
                raise ValueError(f"file_editor: command must be one of {', '.join(NEEDED)}")
            self.require(NEEDED[self.command], self.function)
        given = (self.command, self.path, self.search_term)
        self.check_texts(*given)
        self.check_path(self.path)
        if any(len(text.encode("utf-8", "replace")) > _LONGEST for text in given if text):
            raise ValueError(f"command, path and search_term have at most {_LONGEST} bytes")
        return self
