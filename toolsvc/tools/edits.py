"""The arguments of an edit of a file, for every tool that edits files."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pydantic import BaseModel, Field

from toolsvc.plugin.tool import STRICT

NEEDED = {
    "view": ("path",),
    "create": ("path", "file_text"),
    "str_replace": ("path", "old_str", "new_str"),
    "insert": ("path", "insert_line", "new_str"),
    "undo": ("path",),
}
"""Arguments of each edit."""

LONGEST = 1_000_000
"""Characters of all texts together."""
LONGEST_BYTES = 4_100_000
"""Maximum size of all texts as JSON, in bytes; a control character takes six. The sandbox takes
messages of 4 MiB."""
LONGEST_PATH, DEEPEST_PATH = 4095, 200
"""Maximum characters of a path, which is Linux's limit, and maximum depth of its folders."""


class Edit(BaseModel):
    """All arguments of an edit but the path, which other requests have too."""

    model_config = STRICT

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

    def require(self, names: Iterable[str], what: str) -> None:
        """Raises ValueError if a request for `what` lacks one of the arguments `names`."""
        missing = [name for name in names if getattr(self, name) is None]
        if missing:
            raise ValueError(f"{what} needs {', '.join(missing)}")

    def check_path(self, path: str | None) -> None:
        """Raises ValueError if the path is too long or too deep."""
        if path is not None and (len(path) > LONGEST_PATH or path.count("/") > DEEPEST_PATH):
            raise ValueError(
                f"a path has at most {LONGEST_PATH} characters and {DEEPEST_PATH} folders"
            )

    def check_texts(self, *others: str | None) -> None:
        """Raises ValueError if the texts of the edit and `others` are too long, or cannot be
        sent."""
        given = (self.file_text, self.old_str, self.new_str, *others)
        texts = [text for text in given if text is not None]
        if any("\0" in text for text in texts):
            raise ValueError("a text cannot hold a NUL character")
        if sum(map(len, texts)) > LONGEST:
            raise ValueError(f"more than {LONGEST} characters")
        if (
            sum(len(json.dumps(text, ensure_ascii=False).encode()) for text in texts)
            > LONGEST_BYTES
        ):
            raise ValueError(f"more than {LONGEST_BYTES} bytes of JSON")
