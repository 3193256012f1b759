"""Chat messages, VerlTool's multi-turn mode: function calls in Qwen's template.

Every observation is a message of role `tool`, or of `system_role` for the environment's own text.
Its frame, the template's text around the content and up to the next generation prompt, is found
once by rendering a sentinel. With `parallel` an action holds any number of calls: each is sent when
it is complete, the action ends with the turn, and each result is a message of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from engine.core.protocols.actions import as_call, json_tags, nothing_done, read_call
from engine.core.text.cut import stop_cut
from engine.core.text.framing import Frame, find_frame
from engine.core.text.messages import calls_of, content_of, opening, split_opening
from engine.types import Answer, Call, Calls, Codec, Decision, End, ToolSpec, View
from toolwright.reading.actions import JsonCall, Tags, calls_in, last_call
from toolwright.types import Author, Task

MOST_CALLS = 256
"""Most calls of an action that run; each mark reads all calls before it again."""


class Chat:
    """Chat messages. With an empty `answer_open`, an action without a call is the answer."""

    def __init__(
        self,
        *,
        call_open: str = "<tool_call>",
        call_close: str = "</tool_call>",
        role: str = "tool",
        system_role: str = "",
        answer_open: str = "",
        answer_close: str = "",
        parallel: bool = False,
    ) -> None:
        """call_open, call_close: tags of a call. role: role of observations. system_role: role of
        the environment's own text, "" = `role`. answer_open, answer_close: tags of the answer.
        parallel: several calls in an action.
        """
        self._parallel = parallel
        self._frames: dict[tuple[Codec, str], Frame] = {}
        """Text of the template around observations, by codec and role."""
        self._rendered: dict[tuple[Codec, bool, str], tuple[list[int], ...]] = {}
        """Ids of the frames, also by whether the policy ended its turn."""
        self._call_open = call_open
        self._call_close = call_close
        self._tags = Tags(call_open, call_close)
        self._role = role
        self._system_role = system_role or role
        self._answer_open = answer_open
        self._answer_close = answer_close

    def prompt(self, task: Task, tools: Sequence[ToolSpec], codec: Codec) -> list[int]:
        return codec.chat_ids(self.opening(task, tools), tools=self.shown(task, tools))

    def opening(self, task: Task, tools: Sequence[ToolSpec]) -> list[Mapping[str, Any]]:
        """Messages of the prompt."""
        return opening(task)

    @property
    def roles(self) -> frozenset[str]:
        """Roles of messages with observations: of tools, and of the environment itself."""
        return frozenset({self._role, self._system_role})

    @property
    def call_tags(self) -> tuple[str, str]:
        """Opening and closing tag of a call."""
        return self._call_open, self._call_close

    def offered(self, task: Task, tools: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        """The session's tools that a task's policy may know."""
        return tools

    def shown(self, task: Task, tools: Sequence[ToolSpec]) -> list[Mapping[str, Any]]:
        """The tools that the chat template shows in a task; none if the prompt itself has them."""
        return self.functions(self.offered(task, tools))

    def functions(self, tools: Sequence[ToolSpec]) -> list[Mapping[str, Any]]:
        """Function-calling schemas of the tools, for the chat template."""
        return [_function(tool) for tool in tools]

    def stops(self, tools: Sequence[ToolSpec], codec: Codec) -> tuple[str, ...]:
        ends = [stop for tool in tools for stop in tool.stop_strings if not tool.json_call]
        if not self._parallel:
            ends.append(self._call_close)
        return tuple(dict.fromkeys([*ends, codec.end_of_turn]))

    def marks(self, tools: Sequence[ToolSpec], codec: Codec) -> tuple[str, ...]:
        return (self._call_close,) if self._parallel else ()

    def json_calls(self, tools: Sequence[ToolSpec], codec: Codec) -> tuple[Tags, ...]:
        return (self._tags, *json_tags(tools))

    def decide(self, text: str, stop: str, view: View, codec: Codec) -> Decision:
        if self._parallel and stop in (self._call_close, codec.end_of_turn):
            calls = self._calls_in(text, view.tools)
            if calls:
                return Calls(calls=calls)
        elif stop == self._call_close:
            call = self._own_call(text, last_call(text, self._tags), view.tools)
            return Calls(calls=(call,))
        elif stop != codec.end_of_turn:
            return Calls(calls=(read_call(text, stop, view.tools),))
        body = text.removesuffix(codec.end_of_turn)
        if not self._answer_open:
            return Answer(text=body.strip()) if body.strip() else nothing_done(body)
        start = body.rfind(self._answer_open)
        if start < 0:
            return nothing_done(body)
        answer, closed, _ = stop_cut(body[start + len(self._answer_open) :], [self._answer_close])
        if closed is None:
            return End()
        return Answer(text=answer.removesuffix(self._answer_close).strip())

    def frame(
        self, stop: str | None, codec: Codec, author: Author = Author.TOOL
    ) -> tuple[list[int], list[int]]:
        before, _, after = self._around(stop, codec, self._role_of(author))
        return before, after

    def observation(
        self, texts: Sequence[str], codec: Codec, author: Author = Author.TOOL
    ) -> list[int]:
        role = self._role_of(author)
        write = self._frame_of(codec, role).write
        if not self._parallel:
            return codec.encode_plain(write("\n".join(texts)))
        _, between, _ = self._around(None, codec, role)
        body: list[int] = []
        for number, text in enumerate(texts):
            body += [*(between if number else ()), *codec.encode_plain(write(text))]
        return body

    def observed(self, text: str, codec: Codec, author: Author = Author.TOOL) -> str:
        """A tool's text, from the template's form of it.

        Raises ValueError for a text that is cut inside an escape.
        """
        return self._frame_of(codec, self._role_of(author)).read(text)

    def ending(self, text: str, codec: Codec) -> str:
        """The stop of a recorded assistant message.

        A rollout stops at a call, and the frame then ends the turn. With parallel calls the policy
        ends it.
        """
        if text.endswith(self._call_close) and not self._parallel:
            return self._call_close
        return codec.end_of_turn

    def _around(self, stop: str | None, codec: Codec, role: str) -> tuple[list[int], ...]:
        """Ids before the first observation of a turn, between two, and after the last."""
        frame = self._frame_of(codec, role)
        before = frame.before
        if stop in codec.turn_ends:
            before = before.removeprefix(codec.end_of_turn)
        key = (codec, stop in codec.turn_ends, role)
        if key not in self._rendered:
            parts = (before, frame.between, frame.after)
            self._rendered[key] = tuple(codec.encode(part) for part in parts)
        return self._rendered[key]

    def _role_of(self, author: Author) -> str:
        return self._system_role if author is Author.SYSTEM else self._role

    def _frame_of(self, codec: Codec, role: str) -> Frame:
        """Raises ValueError if the template does not fit."""
        if (codec, role) not in self._frames:
            self._frames[codec, role] = find_frame(codec, role)
        return self._frames[codec, role]

    def demonstration(
        self, messages: Sequence[Mapping[str, Any]], codec: Codec, tools: Sequence[ToolSpec] = ()
    ) -> list[tuple[str, list[int]]]:
        before, rest = split_opening(messages)
        task = Task(id="demonstration", messages=tuple(before))
        runs = [("prompt", self.prompt(task, tools, codec))]
        stop = codec.end_of_turn
        for role, group in groupby(rest, key=lambda message: message.get("role")):
            if role == "assistant":
                for message in group:
                    text = self._written(message)
                    stop = self.ending(text, codec)
                    text = text + codec.end_of_turn if stop == codec.end_of_turn else text
                    runs.append(("model", codec.encode(text)))
            elif role in (self._role, self._system_role):
                author = Author.TOOL if role == self._role else Author.SYSTEM
                head, tail = self.frame(stop, codec, author)
                texts = [content_of(message) for message in group]
                runs.append(("tool", [*head, *self.observation(texts, codec, author), *tail]))
            else:
                fix = ': set system_role = "user" in task.protocol_options' * (role == "user")
                raise ValueError(f"message of {role!r} after the first assistant message{fix}")
        return runs

    def _written(self, message: Mapping[str, Any]) -> str:
        """The message as a policy's text: its content, then each structured call."""
        calls = [
            json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
            for name, arguments in calls_of(message)
        ]
        if len(calls) > 1 and not self._parallel:
            raise ValueError(
                f"a message has {len(calls)} calls, but a rollout stops at the first: set "
                "parallel = true in task.protocol_options"
            )
        tagged = (f"{self._call_open}\n{call}\n{self._call_close}" for call in calls)
        return content_of(message) + "\n".join(tagged)

    def _calls_in(self, text: str, tools: Sequence[ToolSpec]) -> tuple[Call, ...]:
        """All complete calls of an action, in order. One invalid call replaces those above
        MOST_CALLS."""
        found = calls_in(text, self._tags, MOST_CALLS + 1)
        calls = [self._own_call(one.piece, one.call, tools) for one in found[:MOST_CALLS]]
        if len(found) > MOST_CALLS:
            reason = f"more than {MOST_CALLS} calls in one turn: this one and later ones do not run"
            calls.append(Call(action=found[-1].piece, invalid_reason=reason))
        return tuple(calls)

    def _own_call(self, action: str, found: JsonCall, tools: Sequence[ToolSpec]) -> Call:
        """The call of a tool by its name. Another name is left to a tool with a raw format."""
        if not found.fault and found.name in {tool.name for tool in tools}:
            return as_call(action, found)
        raw = [tool for tool in tools if tool.raw and self._call_close in tool.stop_strings]
        return read_call(action, self._call_close, raw) if raw else as_call(action, found)


def _function(tool: ToolSpec) -> Mapping[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description or tool.usage,
            "parameters": dict(tool.arguments_schema) or {"type": "object", "properties": {}},
        },
    }
