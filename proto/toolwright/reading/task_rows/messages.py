"""Chat messages of a row, as a published file holds them, in one form. Pure.

Invariants of what is returned
- A message has a role. Its content is a text, or a list of parts if one of them is not a text.
- Structured calls have a name, and an object of arguments.
- A null that a table put in place of a missing key is gone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from toolwright.json_data import read_exact
from toolwright.reading.task_rows.data import data_in
from toolwright.reading.task_rows.nulls import arguments_without_nulls
from toolwright.reading.task_rows.refusal import RowRefused

_ROLES = {"developer": "system", "function": "tool"}
"""Other names of roles, which few chat templates know."""
_LIKE_MESSAGES = re.compile(r"\s*\[\s*(?:array\(\s*\[\s*)?\{\s*['\"](?:role|content)['\"]\s*:")


def stands_for_messages(text: str) -> bool:
    """Whether a text is a list of messages, as JSON or as Python prints it, by how it begins."""
    return _LIKE_MESSAGES.match(text) is not None


def read_messages(
    found: Any, schemas: Mapping[str, Mapping[str, Any]] | None = None
) -> tuple[Mapping[str, Any], ...]:
    """The messages of a column: a list of objects, the text of such a list, or the text of a
    question, which is one message of the user. RowRefused names the message, counted from 1.

    schemas: of the arguments, by the tools' names. A table gives a call's arguments the keys of all
    other tools as nulls. Such nulls are left out of arguments that are an object.
    """
    if isinstance(found, str):
        if not stands_for_messages(found):
            return ({"role": "user", "content": found},) if found.strip() else ()
        try:
            found = data_in(found)
        except ValueError as error:
            raise _refused(f"messages in a text that cannot be read: {error}") from error
    if hasattr(found, "tolist"):  # NumPy
        found = found.tolist()
    if not isinstance(found, list | tuple):
        raise _refused(
            f'messages are a list of objects with "role" and "content", not {_kind(found)}'
        )
    return tuple(_message(number, one, schemas or {}) for number, one in enumerate(found, 1))


def arguments_in(name: str, found: Any) -> Mapping[str, Any]:
    """Arguments of a call, an object or the JSON text of one. Raises RowRefused for others."""
    if isinstance(found, str):
        try:
            found = read_exact(found) if found.strip() else {}
        except ValueError as error:
            raise _refused(f"the arguments of {name!r:.80}: not JSON ({error})") from error
    if found is None:
        found = {}
    if not isinstance(found, Mapping):
        raise _refused(f"the arguments of {name!r:.80} are a {_kind(found)}: write an object")
    return found


def _message(number: int, one: Any, schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(one, Mapping):
        raise _refused(
            f"message {number} is a {_kind(one)}: messages are a list of objects with "
            '"role" and "content"'
        )
    role = one.get("role")
    if not isinstance(role, str) or not role:
        raise _refused(f"message {number} has no role: write user, assistant, tool or system")
    out: dict[str, Any] = {str(key): value for key, value in one.items() if value is not None}
    out["role"] = role = _ROLES.get(role, role)
    calls = _calls(number, out, schemas)
    if calls and role != "assistant":
        raise _refused(f"message {number} is of {role!r:.80} and calls: only the assistant does")
    out["content"] = _content(number, role, one.get("content"), calls=bool(calls))
    if calls:
        out["tool_calls"] = calls
    return out


def _content(number: int, role: str, found: Any, *, calls: bool) -> str | list[Any]:
    """Text parts are joined. An assistant's message that calls, and a tool's, may have no text."""
    if found is None and (calls or role == "tool"):
        return ""
    if isinstance(found, str):
        return found
    if hasattr(found, "tolist"):
        found = found.tolist()
    if isinstance(found, list | tuple):
        parts = [_part(number, part) for part in found]
        if all(isinstance(part.get("text"), str) for part in parts):
            return "".join(part["text"] for part in parts)
        return parts
    said = "has no text" if found is None else f"has content that is a {_kind(found)}"
    raise _refused(f"message {number} of {role!r:.80} {said}: write it as its `content`")


def _part(number: int, part: Any) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if isinstance(part, Mapping):
        found = {str(key): value for key, value in part.items() if value is not None}
        if "text" in found or "type" in found:
            return found
    raise _refused(
        f'message {number} has a part of content that is no {{"type", ...}}: write '
        '{"type": "text", "text": ...}'
    )


def _calls(
    number: int, message: dict[str, Any], schemas: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """The calls, taken out of the message: `tool_calls`, or `function_call`, the older spelling."""
    listed, older = message.pop("tool_calls", None), message.pop("function_call", None)
    if hasattr(listed, "tolist"):
        listed = listed.tolist()
    if listed is None:
        filled = isinstance(older, Mapping) and any(value is not None for value in older.values())
        listed = [{"function": older}] if filled else []
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise _refused(f"tool_calls of message {number} are not a list: write one")
    return [_call(number, one, schemas) for one in listed]


def _call(number: int, call: Any, schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    function = call.get("function") or call if isinstance(call, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name, str) or not name:
        raise _refused(
            f'a call of message {number} names no function: write {{"function": {{"name", '
            '"arguments"}}'
        )
    identity = {"id": call["id"]} if isinstance(call.get("id"), str) else {}
    given = function.get("arguments")
    if given is None and function.get("parameters") is not None:
        raise _refused(
            f'message {number}: the call of {name!r:.80} has "parameters" in place of "arguments"'
        )
    arguments = arguments_in(name, given)
    if isinstance(given, Mapping) and name in schemas:
        arguments = arguments_without_nulls(arguments, schemas[name])
    return {**identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def _refused(reason: str) -> RowRefused:
    return RowRefused("messages", reason)


def _kind(found: Any) -> str:
    return type(found).__name__
