"""What the policy may ask for: one of four functions, with R2E-Gym's names of parameters."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, Field, model_validator

from toolsvc.tool import STRICT

_NEEDED = {
    "view": ("path",),
    "create": ("path", "file_text"),
    "str_replace": ("path", "old_str", "new_str"),
    "insert": ("path", "insert_line", "new_str"),
    "undo": ("path",),
}
_LONGEST = 100_000
"""Bytes of a command; the kernel takes 128 KiB in one argument of a program."""
_LONGEST_TEXT = 1_000_000


class SweArguments(BaseModel):
    """A function and its parameters."""

    model_config = STRICT

    function: Literal["file_editor", "execute_bash", "search", "submit"]
    command: str | None = Field(
        default=None,
        description="execute_bash: what to run; file_editor: view, create, str_replace, insert or "
        "undo",
    )
    path: str | None = Field(
        default=None, description="file_editor, search: relative to the repository"
    )
    view_range: tuple[int, int] | None = Field(
        default=None, description="view: first and last line, from 1; -1 = to the end"
    )
    file_text: str | None = Field(default=None, description="create: the new file's text")
    old_str: str | None = Field(
        default=None, description="str_replace: a text that occurs exactly once"
    )
    new_str: str | None = Field(
        default=None, description="str_replace: what replaces it; insert: what is inserted"
    )
    insert_line: int | None = Field(
        default=None, description="insert: the line after which; 0 = at the beginning"
    )
    search_term: str | None = Field(default=None, description="search: a text, as it stands")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        needed: tuple[str, ...] = ()
        if self.function == "execute_bash":
            needed = ("command",)
        elif self.function == "search":
            needed = ("search_term",)
        elif self.function == "file_editor":
            if self.command not in _NEEDED:
                raise ValueError(f"file_editor: command must be one of {', '.join(_NEEDED)}")
            needed = _NEEDED[self.command]
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise ValueError(f"{self.function} needs {', '.join(missing)}")
        given = (self.command, self.path, self.search_term)
        long = (self.file_text, self.old_str, self.new_str)
        texts = [text for text in (*given, *long) if text is not None]
        if any("\0" in text for text in texts):
            raise ValueError("a text cannot hold a NUL character")
        if any(len(text.encode("utf-8", "replace")) > _LONGEST for text in given if text):
            raise ValueError(f"command, path and search_term have at most {_LONGEST} bytes")
        if sum(map(len, texts)) > _LONGEST_TEXT:
            raise ValueError(f"more than {_LONGEST_TEXT} characters")
        return self
