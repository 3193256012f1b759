"""The Hermes layout: calls, results and tools as tagged text inside messages. Pure.

Published rows are `conversations` of `from` and `value`; the same text in `role` and `content` is
read too. The system message lists the tools in <tools>, the assistant writes <tool_call>, and
results stand in <tool_response>.

Tags are found as in actions: inside a string of a call's JSON they are text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.offline.conversations.frames import without_frame
from engine.offline.conversations.functions import data_from, tools_in
from engine.offline.conversations.openai import check_answers, messages_in, untrained_positions
from engine.offline.conversations.types import BrokenRow, RecordedConversation
from engine.types import ToolSpec
from toolwright.reading.action_ends import Counted, Grammar, Place, Tags, counted
from toolwright.reading.actions import call_of
from toolwright.reading.task_rows.messages import arguments_in

_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
}
_CALL, _RESPONSE, _TOOLS = "tool_call", "tool_response", "tools"


def has_tagged_texts(messages: Any) -> bool:
    """Whether messages with OpenAI's keys have Hermes texts: tools in <tools>, or tagged
    results."""
    for place, one in enumerate(messages if isinstance(messages, list) else ()):
        content = one.get("content") if isinstance(one, Mapping) else None
        if not isinstance(content, str):
            continue
        if place == 0 and one.get("role") == "system" and _listed(content) is not None:
            return True
        if one.get("role") == "tool" and content.lstrip().startswith(f"<{_RESPONSE}>"):
            return True
    return False


def conversation(row: Mapping[str, Any], identity: str) -> RecordedConversation:
    """Reads a row. Raises BrokenRow with the message's number, from 1, and the fix."""
    key = "conversations" if "conversations" in row else "messages"
    messages: list[Mapping[str, Any]] = []
    with_tool_list: list[Mapping[str, Any]] = []
    spoken: list[Mapping[str, Any]] = []
    tools: tuple[ToolSpec, ...] | None = None
    for number, one in enumerate(messages_in(row, key), 1):
        role, text = _role_and_text(number, one)
        if role == "system" and tools is None and (span := _listed(text)) is not None:
            with_tool_list.append({"role": role, "content": text})
            tools = _tools_of(text, span)
            begins, ends = span[0] - len(f"<{_TOOLS}>"), span[1] + len(f"</{_TOOLS}>")
            if rest := without_frame(text, begins, ends):
                messages.append({"role": role, "content": rest})
            continue
        if role == "assistant":
            spoken.append(one)
        last = messages[-1] if messages else {}
        if role == "tool" and last.get("role") != "tool" and not last.get("tool_calls"):
            raise BrokenRow(f"message {number} answers no call: put it right after the calls")
        read = list(_read(number, role, text))
        messages += read
        with_tool_list += read
    check_answers(messages)
    if row.get("tools") is not None:  # a column of tools is more exact than the text
        tools = tools_in(row["tools"])
    return RecordedConversation(
        id=identity,
        messages=tuple(messages),
        tools=tools,
        with_tool_list=tuple(with_tool_list) if with_tool_list != messages else None,
        untrained=untrained_positions(spoken),
    )


def _role_and_text(number: int, one: Mapping[str, Any]) -> tuple[str, str]:
    speaker = one.get("from", one.get("role"))
    role = _ROLES.get(speaker) if isinstance(speaker, str) else None
    if role is None:
        raise BrokenRow(
            f"message {number} is from {speaker!r:.80}: write system, human, gpt or tool"
        )
    text = one.get("value", one.get("content"))
    if not isinstance(text, str):
        raise BrokenRow(f"message {number} has no text: write it as its `value`")
    return role, text


def _read(number: int, role: str, text: str) -> Iterator[Mapping[str, Any]]:
    """The message; a message with several results becomes one for each."""
    if role == "assistant":
        yield _assistant(number, text)
    elif role == "tool":
        for answer in _results(number, text):
            yield {"role": role, "content": answer}
    else:
        yield {"role": role, "content": text}


def _assistant(number: int, text: str) -> Mapping[str, Any]:
    before, bodies = _split(number, text, _CALL)
    if not bodies:
        return {"role": "assistant", "content": text}
    calls = []
    for body in bodies:
        found = data_from(body, f"a call of message {number}")
        name = found.get("name") if isinstance(found, Mapping) else None
        if not isinstance(found, Mapping) or not isinstance(name, str) or not name:
            raise BrokenRow(
                f'a call of message {number} names no tool: write {{"name", "arguments"}} inside '
                f"<{_CALL}>"
            )
        if "arguments" not in found and (fault := call_of(found).fault):
            raise BrokenRow(f"message {number}: {fault}")
        arguments = arguments_in(name, found.get("arguments"))
        calls.append({"type": "function", "function": {"name": name, "arguments": arguments}})
    # One line break belongs to the tag: the protocol writes calls in its own way.
    content = before.removesuffix("\n") if before.strip() else ""
    return {"role": "assistant", "content": content, "tool_calls": calls}


def _results(number: int, text: str) -> Sequence[str]:
    before, bodies = _split(number, text, _RESPONSE)
    if not bodies:
        return [text]
    if before.strip():
        raise BrokenRow(
            f"message {number} has text before <{_RESPONSE}>: move it inside, or delete it"
        )
    return [body.removeprefix("\n").removesuffix("\n") for body in bodies]


def _split(number: int, text: str, tag: str) -> tuple[str, list[str]]:
    """The text before the first <tag>, and the body of each.

    Raises BrokenRow for a tag that is not closed, and for text after one.
    """
    tags = Tags(f"<{tag}>", f"</{tag}>")
    opens, closes = text.find(tags.open), text.find(tags.close)
    if closes >= 0 and not 0 <= opens < closes:
        raise BrokenRow(f"message {number} has {tags.close} without {tags.open}: open it")
    before, at = text, 0
    bodies: list[str] = []
    found = counted(text, Grammar(ends=(tags.close,), json=(tags,)))
    for end, opened in zip(found.ends, _opened_before(found), strict=True):
        if not opened:
            raise BrokenRow(f"message {number} has {tags.close} without {tags.open}: open it")
        if len(opened) > 1:
            raise BrokenRow(f"message {number} has {tags.open} without {tags.close}: close it")
        start = opened[0].start
        if bodies:
            _check_blank(number, text[at:start], tags.close)
        else:
            before = text[:start]
        bodies.append(text[start + len(tags.open) : end.start])
        at = end.end
    if tags.open in text[at:]:
        raise BrokenRow(f"message {number} has {tags.open} without {tags.close}: close it")
    if bodies:
        _check_blank(number, text[at:], tags.close)
    return before, bodies


def _opened_before(found: Counted) -> list[list[Place]]:
    """For each end, the opening tags since the end before."""
    opened: list[list[Place]] = []
    waiting = list(reversed(found.opened))
    for end in found.ends:
        opened.append([])
        while waiting and waiting[-1].start < end.start:
            opened[-1].append(waiting.pop())
    return opened


def _check_blank(number: int, text: str, closed: str) -> None:
    if text.strip():
        raise BrokenRow(
            f"message {number} has text after {closed}, {text.strip()[:40]!r}: the policy stops "
            "there; move it before the first call, or delete it"
        )


def _listed(text: str) -> tuple[int, int] | None:
    """Span of the tools in a system message, without their tags; None without tools.

    It is the first <tools> that holds a list or an object: sentences around it name empty tags.
    """
    opened, closed = f"<{_TOOLS}>", f"</{_TOOLS}>"
    at = text.find(opened)
    while at >= 0:
        start = at + len(opened)
        if _first_letter(text, start) in ("[", "{"):
            end = text.find(closed, start)
            return (start, end) if end >= 0 else None
        at = text.find(opened, start)
    return None


def _first_letter(text: str, start: int) -> str:
    """The first character from `start` on that is not white space; "" at the end."""
    while start < len(text) and text[start].isspace():
        start += 1
    return text[start : start + 1]


def _tools_of(text: str, span: tuple[int, int]) -> tuple[ToolSpec, ...]:
    """A list of functions, or a function a line as Qwen's template writes them."""
    inside = text[slice(*span)].strip()
    try:
        return tools_in(data_from(inside, f"<{_TOOLS}>"))
    except BrokenRow:
        lines = [line for line in inside.splitlines() if line.strip()]
        if inside.startswith("[") or len(lines) < 2:
            raise
    return tools_in([data_from(line, f"a line of <{_TOOLS}>") for line in lines])
