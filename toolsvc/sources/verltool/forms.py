"""How VerlTool's tools read an action and frame an answer, for this service's tools of the same
kind; pure.

Follows `python_code`, `bash_terminal`, `sql` and `search_retrieval` of verl_tool/servers/tools, and
tool_server.py for an action that calls no tool. A policy that was trained on those frames finds
them here. The text inside a frame is our tool's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from toolsvc.types import Result, Text

_NOT_SQL = (
    "Your previous action is invalid. Follow the format of outputting thinking process and sql "
    "tool, and try again."
)
NOTHING_FOUND = "No passage matches."
"""The answer of our `search` without hits; VerlTool's answer is empty."""


class Framed(NamedTuple):
    """One item of the HTTP answer."""

    observation: str | dict[str, Any]
    done: bool
    valid: bool


NO_CALL = Framed("", done=False, valid=False)


class Form:
    """The form of one tool: it reads all blocks of its tag, else all its fences, as one script."""

    def __init__(self, argument: str, tag: str, fences: str, frame: str, fence: str) -> None:
        """`argument`: name of our tool's argument. `fences`: languages, as a pattern. `frame` and
        `fence`: name of the tag and of the fence around an answer."""
        self._argument = argument
        self._tag = re.compile(f"<{tag}>")
        self._closing = f"</{tag}>"
        self._fences = re.compile(rf"```\s*(?:{fences})\b")
        self._frame, self._fence = frame, fence

    def read(self, action: str) -> dict[str, Any] | None:
        """Arguments of our tool; None if the action does not call it."""
        blocks = list(_between(action, self._tag, self._closing))
        blocks = blocks or list(_between(action, self._fences, "```"))
        return {self._argument: "\n".join(map(str.strip, blocks))} if blocks else None

    def without_call(self, action: str, extra: Mapping[str, Any], alone: bool) -> Framed | None:
        """The answer to an action that does not call it; None if another tool may be called.
        `alone`: there is no other tool."""
        return NO_CALL if alone else None

    def framed(self, action: str, extra: Mapping[str, Any], result: Result) -> Framed:
        """The framed answer."""
        said = _text(result).strip(" \n")
        if self._tag.search(action):
            framed = f"\n<{self._frame}>\n{said}\n</{self._frame}>\n"
        else:
            framed = f"\n```{self._fence}\n{said}\n```\n"
        return Framed(framed, done=False, valid=True)


class _Sql(Form):
    def __init__(self) -> None:
        super().__init__("action", "sql", "sql", "", "")

    def read(self, action: str) -> dict[str, Any] | None:
        statement = _last(action, "sql")
        return None if statement is None else {"action": f"<sql>{statement}</sql>"}

    def without_call(self, action: str, extra: Mapping[str, Any], alone: bool) -> Framed | None:
        if not alone:
            return None
        answer = _last(action, "solution")
        said = _NOT_SQL if answer is None else ""
        return Framed(self._framed(said, answer, extra), done=answer is not None, valid=False)

    def framed(self, action: str, extra: Mapping[str, Any], result: Result) -> Framed:
        # Our last line is the reminder of turns, for which VerlTool has words of its own.
        said = _text(result).rpartition("\n")[0] if result.valid else _NOT_SQL
        return Framed(self._framed(said, _last(action, "sql"), extra), done=False, valid=True)

    def _framed(self, said: str, statement: str | None, extra: Mapping[str, Any]) -> dict[str, Any]:
        left = extra.get("turns_left", 0)
        reminder = f"<reminder>You have {left} turns left to complete the task.</reminder>"
        framed = f"\n\n<observation>{said}\n{reminder}</observation>\n\n"
        return {"obs": framed, "parsed_sql": statement or ""}


class _Search(Form):
    def __init__(self) -> None:
        super().__init__("query", "search", "search", "", "")

    def read(self, action: str) -> dict[str, Any] | None:
        query = _last(action, "search")
        return None if query is None else {"query": query}

    def without_call(self, action: str, extra: Mapping[str, Any], alone: bool) -> Framed | None:
        if _last(action, "answer") is not None:
            return Framed("", done=True, valid=False)
        return super().without_call(action, extra, alone)

    def framed(self, action: str, extra: Mapping[str, Any], result: Result) -> Framed:
        said = _text(result).strip()
        if result.error is not None:
            said = "Search temporarily unavailable"
        elif said == NOTHING_FOUND:
            said = ""
        framed = f"\n\n<information>{said}</information>\n\n"
        return Framed(framed, done=False, valid=result.error is None)


FORMS: Mapping[str, Form] = {
    "python": Form("code", "python", "python|py", "result", "result"),
    "bash": Form("command", "bash", "bash|shell|sh|terminal", "o", "output"),
    "sql": _Sql(),
    "search": _Search(),
}
"""Forms by the name of our tool."""


def no_tool(descriptions: Mapping[str, str]) -> Framed:
    """The answer to an action that calls none of several tools. `descriptions`: by tool name."""
    lines = [f"• {name}: {text}" for name, text in descriptions.items()]
    told = {
        "obs": "",
        "invalid_reason": "No valid tool found for action",
        "available_tools": "\n".join(["Available tools:", *lines]),
    }
    return Framed(told, done=False, valid=False)


def _between(action: str, opening: re.Pattern[str], closing: str) -> Iterator[str]:
    """The blocks, one after the other; each ends at the first closing mark after its opening."""
    at = 0
    while (start := opening.search(action, at)) is not None:
        end = action.find(closing, start.end())
        if end < 0:
            return
        yield action[start.end() : end]
        at = end + len(closing)


def _last(action: str, tag: str) -> str | None:
    """The text after the last opening tag, up to its closing one."""
    start = action.rfind(f"<{tag}>")
    end = action.find(f"</{tag}>", start) if start >= 0 else -1
    return action[start + len(tag) + 2 : end].strip() if end >= 0 else None


def _text(result: Result) -> str:
    return "".join(part.text for part in result.observation if isinstance(part, Text))
