"""The tool service: sessions, calls and sandboxes behind toolwright.tool.v1.ToolService.

For a tool of one's own:

    from toolsvc import tool

    @tool
    def shout(text: str) -> str:
        "Says it louder."
        return text.upper()

and then `toolsvc serve shout.py`. `docs/tools.md` leads through it.
"""

from toolsvc.plugin.actions import InvalidAction
from toolsvc.plugin.decorator import tool
from toolsvc.plugin.results import ToolFailed
from toolsvc.plugin.tool import Tool
from toolsvc.plugin.waiting import waiting
from toolsvc.types import (
    Call,
    JsonCallFormat,
    Media,
    RawFormat,
    Result,
    SessionInfo,
    TagFormat,
    Text,
    ToolError,
)
from toolwright.types import Author

__all__ = [
    "Author",
    "Call",
    "InvalidAction",
    "JsonCallFormat",
    "Media",
    "RawFormat",
    "Result",
    "SessionInfo",
    "TagFormat",
    "Text",
    "Tool",
    "ToolError",
    "ToolFailed",
    "tool",
    "waiting",
]
