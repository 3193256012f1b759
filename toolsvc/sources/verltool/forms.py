"""How VerlTool's own tools read an action and frame what came of it, for our tools of the same
kind; pure.

Follows `python_code`, `bash_terminal`, `sql` and `search_retrieval` of verl_tool/servers/tools, and
tool_server.py where no tool takes an action. The frames are theirs to the byte, and so is what
`python` and `search` say inside of them; rows of `sql` and output of `bash` look as ours do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from toolsvc.sources.verltool.program import (
    BLOCKED,
    END,
    GRACE_SECONDS,
    SECONDS,
    blocked,
    program,
)
from toolsvc.types import Result, Text
from toolwright.types import ToolErrorKind

_LONGEST = 100_000
"""Characters of Python's output."""
_NOT_SQL = (
    "Your previous action is invalid. Follow the format of outputting thinking process and sql "
    "tool, and try again."
)
NOTHING_FOUND = "No passage matches."
"""As our `search` says it; there it is nothing at all."""


class Told(NamedTuple):
    observation: str | dict[str, Any]
    done: bool
    valid: bool


NO_CALL = Told("", done=False, valid=False)


class Form:
    """Of one tool."""

    run_limit: float | None = None
    """Seconds, where it is not our tool's own."""

    def read(self, action: str, extra: Mapping[str, Any]) -> dict[str, Any] | None:
        """Arguments of our tool; None where theirs would not take the action, or not run it."""
        raise NotImplementedError

    def without_call(self, action: str, extra: Mapping[str, Any], alone: bool) -> Told | None:
        """What theirs answers to an action that it does not read, or None. `alone`: there is no
        other tool, so that it is asked whatever the action is."""
        return NO_CALL if alone else None

    def told(self, action: str, extra: Mapping[str, Any], result: Result) -> Told:
        """What theirs would have answered."""
        raise NotImplementedError


class _Python(Form):
    run_limit = SECONDS + GRACE_SECONDS

    def read(self, action: str, extra: Mapping[str, Any]) -> dict[str, Any] | None:
        code = _python_of(action)
        if code is None or blocked(code):
            return None
        inputs = list(_between(action, _INPUT_FENCE, "\n```"))
        given = inputs[0].strip() if inputs else extra.get("stdin", "")
        return {"code": program(code, given if isinstance(given, str) else "")}

    def without_call(self, action: str, extra: Mapping[str, Any], alone: bool) -> Told | None:
        if _python_of(action) is not None:
            return Told(_framed_python(action, BLOCKED), done=False, valid=True)
        return super().without_call(action, extra, alone)

    def told(self, action: str, extra: Mapping[str, Any], result: Result) -> Told:
        text = _text(result)
        if result.error is None:
            text = text.removesuffix(END)
        elif result.error.kind is ToolErrorKind.TIMEOUT:
            text = f"Execution timed out after {SECONDS} seconds."
        return Told(_framed_python(action, text.strip(" \n")[:_LONGEST]), done=False, valid=True)


def _python_of(action: str) -> str | None:
    """All blocks as one program; None where there is none."""
    blocks = (
        list(_between(action, _PYTHON_TAG, "</python>"))
        or list(_between(action, _PYTHON_FENCE, "```"))
        or list(_between(action, _PY_FENCE, "```"))
    )
    return "\n".join(block.strip() for block in blocks) if blocks else None


class _Bash(Form):
    def read(self, action: str, extra: Mapping[str, Any]) -> dict[str, Any] | None:
        blocks = (
            list(_between(action, _BASH_TAG, "</bash>"))
            or list(_between(action, _BASH_FENCE, "```"))
            or list(_between(action, _TERMINAL_FENCE, "```"))
        )
        command = "\n".join(block.strip() for block in blocks)
        return {"command": command} if blocks else None

    def told(self, action: str, extra: Mapping[str, Any], result: Result) -> Told:
        return Told(_framed_bash(action, _text(result).strip(" \n")), done=False, valid=True)


class _Sql(Form):
    def read(self, action: str, extra: Mapping[str, Any]) -> dict[str, Any] | None:
        statement = _last(action, "<sql>", "</sql>")
        return None if statement is None else {"action": f"<sql>{statement}</sql>"}

    def without_call(self, action: str, extra: Mapping[str, Any], alone: bool) -> Told | None:
        if not alone:
            return None
        answer = _last(action, "<solution>", "</solution>")
        said = _NOT_SQL if answer is None else ""
        return Told(_framed_sql(said, answer or "", extra), done=answer is not None, valid=False)

    def told(self, action: str, extra: Mapping[str, Any], result: Result) -> Told:
        # Our last line is the reminder of turns, which theirs writes in its own words.
        said = _text(result).rpartition("\n")[0] if result.valid else _NOT_SQL
        statement = _last(action, "<sql>", "</sql>") or ""
        return Told(_framed_sql(said, statement, extra), done=False, valid=True)


class _Search(Form):
    def read(self, action: str, extra: Mapping[str, Any]) -> dict[str, Any] | None:
        queries = list(_between(action, _SEARCH_TAG, "</search>"))
        return {"query": queries[-1].strip()} if queries else None

    def without_call(self, action: str, extra: Mapping[str, Any], alone: bool) -> Told | None:
        if next(_between(action, _ANSWER_TAG, "</answer>"), None) is not None:
            return Told("", done=True, valid=False)
        return NO_CALL if alone else None

    def told(self, action: str, extra: Mapping[str, Any], result: Result) -> Told:
        text = _text(result)
        if result.error is not None:
            return Told(_information("Search temporarily unavailable"), done=False, valid=False)
        return Told(_information("" if text == NOTHING_FOUND else text), done=False, valid=True)


FORMS: Mapping[str, Form] = {
    "python": _Python(),
    "bash": _Bash(),
    "sql": _Sql(),
    "search": _Search(),
}
"""By the name of our tool."""


def no_tool(descriptions: Mapping[str, str]) -> Told:
    """Where no tool takes the action. `descriptions`: of the tools, by name."""
    lines = [f"• {name}: {text}" for name, text in descriptions.items()]
    told = {
        "obs": "",
        "invalid_reason": "No valid tool found for action",
        "available_tools": "\n".join(["Available tools:", *lines]),
    }
    return Told(told, done=False, valid=False)


_PYTHON_TAG = re.compile("<python>")
_PYTHON_FENCE = re.compile("```\n?python")
_PY_FENCE = re.compile("```\n?py")
_INPUT_FENCE = re.compile("```input\n")
_BASH_TAG = re.compile("<bash>")
_BASH_FENCE = re.compile(r"```\s*(?:bash|shell|sh)")
_TERMINAL_FENCE = re.compile(r"```\s*terminal")
_SEARCH_TAG = re.compile("<search>")
_ANSWER_TAG = re.compile("<answer>")


def _between(action: str, opening: re.Pattern[str], closing: str) -> Iterator[str]:
    """The blocks, one after the other; each ends at the first closing mark after its opening."""
    at = 0
    while (start := opening.search(action, at)) is not None:
        end = action.find(closing, start.end())
        if end < 0:
            return
        yield action[start.end() : end]
        at = end + len(closing)


def _last(action: str, opening: str, closing: str) -> str | None:
    """What follows the last opening mark, up to the next closing one."""
    start = action.rfind(opening)
    end = action.find(closing, start + len(opening)) if start >= 0 else -1
    return action[start + len(opening) : end].strip() if end >= 0 else None


def _framed_python(action: str, said: str) -> str:
    if "```output" in action or "```python" in action:
        closed = action.count("```") % 2 == 0
        return f"\n```result\n{said}\n```\n" if closed else f"\n{said}\n```\n"
    if "</tool_call>" in action:
        return f"\n<tool_response>\n```result\n{said}\n```\n</tool_response>\n"
    if action.strip(" \n").endswith("<result>"):
        return f"\n{said}\n</result>\n"
    return f"\n<result>\n{said}\n</result>\n"


def _framed_bash(action: str, said: str) -> str:
    fenced = f"\n```output\n{said}\n```\n"
    fence = "```bash" in action or "```sh" in action
    if action.endswith("```output"):
        return f"\n{said}\n```\n"
    if action.endswith("</tool_call>"):
        return fenced
    if action.endswith("<o>"):
        return f"\n{said}\n</o>\n"
    if "</bash>" in action:
        return f"\n<o>\n{said}\n</o>\n"
    if "<|calling system for feedback|>" in action:
        tagged = f"\n<o>\n{said}\n</o>\n" if "<bash>" in action else f"\n{said}\n"
        return fenced if fence else tagged
    if action.strip(" \n").endswith("```") or fence:
        return fenced if action.count("```") % 2 == 0 else f"output\n{said}\n```\n"
    return f"\n{said}\n"


def _framed_sql(said: str, statement: str, extra: Mapping[str, Any]) -> dict[str, Any]:
    left = extra.get("turns_left", 0)
    reminder = f"<reminder>You have {left} turns left to complete the task.</reminder>"
    framed = f"\n\n<observation>{said}\n{reminder}</observation>\n\n"
    return {"obs": framed, "parsed_sql": statement}


def _information(said: str) -> str:
    return f"\n\n<information>{said.strip()}</information>\n\n"


def _text(result: Result) -> str:
    return "".join(part.text for part in result.observation if isinstance(part, Text))
