"""The tool service: sessions, calls and sandboxes behind toolwright.tool.v1.ToolService.

For a tool of one's own:

    from toolsvc import tool

    @tool
    def shout(text: str) -> str:
        "Says it louder."
        return text.upper()

and then `toolsvc serve shout.py`. `docs/tools/your-own.md` leads through it.

The names are imported when they are used. Processes that parse foreign bytes (`confined`) are
forked from one that has imported this package, and pay for all that it holds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolsvc.plugin.actions import InvalidAction
    from toolsvc.plugin.decorator import tool
    from toolsvc.plugin.executors import LiveState, OutOfProcess
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
    "LiveState",
    "Media",
    "OutOfProcess",
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

_PLACES = {
    "InvalidAction": "toolsvc.plugin.actions",
    "tool": "toolsvc.plugin.decorator",
    "OutOfProcess": "toolsvc.plugin.executors",
    "LiveState": "toolsvc.plugin.executors",
    "ToolFailed": "toolsvc.plugin.results",
    "Tool": "toolsvc.plugin.tool",
    "waiting": "toolsvc.plugin.waiting",
    "Author": "toolwright.types",
}
"""Modules of the names that are not in `toolsvc.types`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES.get(name, "toolsvc.types")), name)
