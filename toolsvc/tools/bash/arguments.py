"""What the policy may ask for: a command for the shell, or one of the file tools."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from toolsvc.tools.edits import NEEDED, Edit


class BashArguments(Edit):
    """Either `command`, or `edit` and `path` and what that edit needs."""

    command: str | None = Field(default=None, description="for the shell; may have many lines")
    edit: Literal["view", "create", "str_replace", "insert", "undo"] | None = Field(
        default=None, description="a file tool, instead of a command"
    )
    path: str | None = Field(default=None, description="of the file, or of a folder to view")
    finish: bool = Field(default=False, description="ends the task")

    @model_validator(mode="after")
    def _one_request(self) -> Self:
        given = [self.command is not None, self.edit is not None, self.finish]
        if sum(given) != 1:
            raise ValueError("give a command, or an edit")
        if self.edit is not None:
            self.require(NEEDED[self.edit], self.edit)
        self.check_texts(self.command, self.path)
        self.check_path(self.path)
        return self
