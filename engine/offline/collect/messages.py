"""A trajectory as plain chat messages with tool calls, for trainers with a template of their own.

This is the inverse of a protocol's `demonstration`, for Chat and Tagged alone. Calls become
OpenAI-style `tool_calls`. Observations become messages of role `tool` with the text that the policy
read, cuts included. What messages cannot express raises NotExportable: other trainers would learn
another trajectory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from engine.core.protocols import Protocol
from engine.core.protocols.chat import Chat
from engine.core.protocols.tagged import Tagged
from engine.core.text.thoughts import begins_inside
from engine.core.trajectory.state import Action, State
from engine.offline.collect.calls import decision_of
from engine.offline.collect.layouts import NotExportable
from engine.types import Call, Calls, Codec, Say, ToolSpec
from toolwright.reading.actions import Tags, calls_in, last_span
from toolwright.types import Author, Task, Trajectory, ids

Message = dict[str, Any]


def is_exportable(protocol: Protocol) -> bool:
    """Whether trajectories of the protocol can become messages."""
    return isinstance(protocol, Chat | Tagged)


def conversation_of(
    state: State, task: Task, protocol: Chat | Tagged, codec: Codec
) -> Mapping[str, Any]:
    """{"messages": [...]} of a trajectory that has ended, with "tools" if its prompt shows them.

    Raises NotExportable with the reason.
    """
    if state.images:
        raise NotExportable("images")
    if state.rewrites:
        raise NotExportable("a context that was rewritten")
    messages: list[Message] = [dict(message) for message in protocol.opening(task, state.tools)]
    for turn in range(len(state.actions)):
        messages += _turn(state, turn, task, protocol, codec)
    found: dict[str, Any] = {"messages": messages}
    if isinstance(protocol, Chat) and (shown := protocol.shown(task, state.tools)):
        found["tools"] = shown
    return found


def tools_of(state: State, task: Task, protocol: Chat | Tagged) -> Sequence[ToolSpec]:
    """The session's tools that the policy was shown, by the template or in the prompt."""
    return protocol.offered(task, state.tools) if isinstance(protocol, Chat) else state.tools


def with_tools(trajectory: Trajectory, state: State) -> Trajectory:
    """The trajectory as criteria see it: metadata["tools"] has the schemas of its session's
    tools."""
    tools = functions_of(state.tools)
    return replace(trajectory, metadata={**trajectory.metadata, "tools": tools})


def functions_of(tools: Sequence[ToolSpec]) -> list[Mapping[str, Any]]:
    """Function-calling schemas of a session's tools, whether or not the prompt shows them.

    The body of a tool that is called by a tag is its one argument.
    """
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description or tool.usage,
                "parameters": dict(tool.arguments_schema) or _body_of(tool),
            },
        }
        for tool in tools
    ]


def _body_of(tool: ToolSpec) -> dict[str, Any]:
    if not tool.argument:
        return {"type": "object", "properties": {}}
    return {
        "type": "object",
        "properties": {tool.argument: {"type": "string"}},
        "required": [tool.argument],
    }


def _turn(
    state: State, turn: int, task: Task, protocol: Chat | Tagged, codec: Codec
) -> list[Message]:
    action = state.actions[turn]
    calls = _calls(state, turn, task, protocol, codec)
    if not calls:
        text = action.text.removesuffix(codec.end_of_turn)
        return [{"role": "assistant", "content": text}]
    tools = {tool.name: tool for tool in state.tools}
    for call in calls:
        if call.invalid_reason or call.arguments is None or call.tool not in tools:
            raise NotExportable("an invalid call")
    thinking = begins_inside(codec, state.before_action(turn))
    content = _before_calls(action, calls, tools, protocol, codec, thinking=thinking)
    written: list[Message] = [
        {
            "role": "assistant",
            "content": content,
            "tool_calls": [_tool_call(call, turn, index) for index, call in enumerate(calls)],
        }
    ]
    observations = _observations(state, turn, protocol, codec)
    if observations and len(observations) != len(calls):
        raise NotExportable("calls and observations that are not one to one")
    for index, text in enumerate(observations):
        written.append({"role": "tool", "tool_call_id": _name(turn, index), "content": text})
    return written


def _calls(
    state: State, turn: int, task: Task, protocol: Chat | Tagged, codec: Codec
) -> Sequence[Call]:
    decision = decision_of(state, turn, task, protocol, codec)
    if isinstance(decision, Say):
        raise NotExportable("text of the environment outside of tools")
    return decision.calls if isinstance(decision, Calls) else ()


def _before_calls(
    action: Action,
    calls: Sequence[Call],
    tools: Mapping[str, ToolSpec],
    protocol: Chat | Tagged,
    codec: Codec,
    *,
    thinking: bool,
) -> str:
    """Text before the calls of an action. thinking: the action begins inside a thought.

    Raises NotExportable for text between or after calls.
    """
    open_tag, close_tag = protocol.call_tags if isinstance(protocol, Chat) else ("", "")
    body = action.text.removesuffix(codec.end_of_turn)
    # Under Chat a tool with a tag can be called by its name as well: the stop shows which it was.
    if not close_tag or action.stop not in (close_tag, codec.end_of_turn):
        mark = tools[calls[0].tool].open_tag
        begin, _ = last_span(body, mark, action.stop or "") if mark else (-1, -1)
        if begin < 0:
            raise NotExportable("a call without an opening tag")
        return body[: begin - len(mark)].rstrip()
    found = calls_in(body, Tags(open_tag, close_tag), thought=codec.thought, thinking=thinking)
    if any(one.start < 0 for one in found) or not found:
        raise NotExportable("a call without an opening tag")
    between = [body[one.end : other.start] for one, other in pairwise(found)]
    if len(found) != len(calls) or any(map(str.strip, (*between, body[found[-1].end :]))):
        raise NotExportable("text between or after calls")
    return body[: found[0].start].rstrip()


def _observations(state: State, turn: int, protocol: Chat | Tagged, codec: Codec) -> list[str]:
    """The observation of each call as the policy read it, in call order; none after the last
    action."""
    runs = [s for s in state.segments if s.turn == turn and s.author > Author.MODEL]
    if not runs:
        return []
    shown = ids()
    for run in runs:
        shown.extend(run.token_ids)
    action: Action = state.actions[turn]
    head, tail = (ids(part) for part in protocol.frame(action.stop, codec, runs[0].author))
    whole = state.fitted or turn < len(state.actions) - 1
    end = len(shown) - len(tail) if whole else len(shown)
    if shown[: len(head)] != head or (whole and shown[end:] != tail):
        raise NotExportable("an observation without its frame")
    body = shown[len(head) : end]
    count = len(state.calls_of(turn))
    if count < 2:
        return [_plain_observation(codec.decode(body), protocol, codec, runs[0].author)]
    between = ids(protocol.observation(["", ""], codec))
    pieces = _split(list(body), list(between))
    if len(pieces) != count:
        raise NotExportable("observations without a separator")
    return [
        _plain_observation(codec.decode(piece), protocol, codec, runs[0].author) for piece in pieces
    ]


def _plain_observation(text: str, protocol: Chat | Tagged, codec: Codec, author: Author) -> str:
    """An observation's text, without the escapes of a template that writes it as JSON."""
    if not isinstance(protocol, Chat):
        return text
    try:
        return protocol.observed(text, codec, author)
    except ValueError as error:
        raise NotExportable("an observation that was cut inside an escape") from error


def _split(body: list[int], between: list[int]) -> list[list[int]]:
    pieces, at = [], 0
    while between and at <= len(body) - len(between):
        if body[at : at + len(between)] == between:
            pieces.append(body[:at])
            body, at = body[at + len(between) :], 0
        else:
            at += 1
    return [*pieces, body]


def _tool_call(call: Call, turn: int, index: int) -> Message:
    try:
        arguments = json.dumps(call.arguments, ensure_ascii=False, allow_nan=False)
    except ValueError as error:  # 1e999 is read as infinity
        raise NotExportable("a number that JSON cannot hold") from error
    return {
        "id": _name(turn, index),
        "type": "function",
        "function": {"name": call.tool, "arguments": arguments},
    }


def _name(turn: int, index: int) -> str:
    return f"call_{turn}_{index}"
