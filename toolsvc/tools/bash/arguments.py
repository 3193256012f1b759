"""What the policy may ask for: a command for the shell, or one of the file tools."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, Field, model_validator

from toolsvc.tool import STRICT

_NEEDED = {
    "view": (),
    "create": ("file_text",),
    "str_replace": ("old_str", "new_str"),
    "insert": ("insert_line", "new_str"),
    "undo": (),
}


LONGEST = 1_000_000
"""Characters of all texts together; the sandbox takes messages of 4 MiB."""


class BashArguments(BaseModel):
    """Either `command`, or `edit` and `path` and what that edit needs."""

    model_config = STRICT

    command: str | None = Field(default=None, description="for the shell; may have many lines")
    edit: Literal["view", "create", "str_replace", "insert", "undo"] | None = Field(
        default=None, description="a file tool, instead of a command"
    )
    path: str | None = Field(default=None, description="of the file, or of a folder to view")
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
    finish: bool = Field(default=False, description="ends the task")

    @model_validator(mode="after")
    def _one_request(self) -> Self:
        given = [self.command is not None, self.edit is not None, self.finish]
        if sum(given) != 1:
            raise ValueError("give a command, or an edit")
        if self.edit is not None:
            needed = ("path", *_NEEDED[self.edit])
            missing = [name for name in needed if getattr(self, name) is None]
            if missing:
                raise ValueError(f"{self.edit} needs {', '.join(missing)}")
        given_texts = (self.command, self.path, self.file_text, self.old_str, self.new_str)
        texts = [text for text in given_texts if text is not None]
        if any("\0" in text for text in texts):
            raise ValueError("a text cannot hold a NUL character")
        if sum(map(len, texts)) > LONGEST:
            raise ValueError(f"more than {LONGEST} characters")
        return self
