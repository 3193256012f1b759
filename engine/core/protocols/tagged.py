"""Tags in plain text, VerlTool's first mode: `<python> ... </python>`.

All actions are one assistant turn: observations are appended as raw text between them, and the turn
ends with the template's end-of-turn token. Tools, stop strings and tag names come from the
session's tool descriptions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.core.protocols.actions import json_tags, nothing_done, read_call
from engine.core.text.messages import calls_of, content_of, opening, split_opening
from engine.types import Answer, Calls, Codec, Decision, ToolSpec, View
from toolwright.chat.foreign import OwnText
from toolwright.reading.actions import Tags
from toolwright.types import Author, Task


class Tagged:
    """Tags in plain text."""

    def __init__(
        self,
        *,
        observation: str = "<result> {text}</result>",
        answer_open: str = "<answer>",
        answer_close: str = "</answer>",
        answer_stops: bool = False,
        call: str = "<{tool}> {argument}</{tool}>",
        system: str = "",
    ) -> None:
        """observation: form of observations, with {text}. answer_open, answer_close: tags of the
        answer. answer_stops: generation ends at `answer_close`. call: form of a demonstration's
        structured call, with {tool} and {argument}. system: a system message, with {usage} for the
        usage texts of the tools.
        """
        if "{text}" not in observation:
            raise ValueError("protocol_options.observation needs {text}")
        self._observation = observation
        self._answer_open = answer_open
        self._answer_close = answer_close
        self._answer_stops = answer_stops
        self._call = call
        self._system = system
        self._frames: dict[Codec, tuple[list[int], list[int]]] = {}

    def prompt(self, task: Task, tools: Sequence[ToolSpec], codec: Codec) -> list[int]:
        messages = opening(task)
        if self._system:
            text = self._system.replace("{usage}", codec.guarded(_usage(tools)))
            messages = [{"role": "system", "content": OwnText(text)}, *messages]
        return codec.chat_ids(messages)

    def opening(self, task: Task, tools: Sequence[ToolSpec]) -> list[Mapping[str, Any]]:
        """Messages of the prompt."""
        messages = opening(task)
        if not self._system:
            return messages
        text = self._system.replace("{usage}", _usage(tools))
        return [{"role": "system", "content": text}, *messages]

    def stops(self, tools: Sequence[ToolSpec], codec: Codec) -> tuple[str, ...]:
        ends = [stop for tool in tools for stop in tool.stop_strings]
        if self._answer_stops:
            ends.append(self._answer_close)
        return tuple(dict.fromkeys([*ends, codec.end_of_turn]))

    def marks(self, tools: Sequence[ToolSpec], codec: Codec) -> tuple[str, ...]:
        return ()

    def json_calls(self, tools: Sequence[ToolSpec], codec: Codec) -> tuple[Tags, ...]:
        return json_tags(tools)

    def decide(self, text: str, stop: str, view: View, codec: Codec) -> Decision:
        if stop not in (codec.end_of_turn, self._answer_close):
            return Calls(calls=(read_call(text, stop, view.tools),))
        body = text.removesuffix(codec.end_of_turn)
        start = body.rfind(self._answer_open)
        end = body.find(self._answer_close, max(start, 0))
        if start >= 0 and end >= 0:
            return Answer(text=body[start + len(self._answer_open) : end].strip())
        return nothing_done(body)

    def frame(
        self, stop: str | None, codec: Codec, author: Author = Author.TOOL
    ) -> tuple[list[int], list[int]]:
        if codec not in self._frames:
            before, _, after = self._observation.partition("{text}")
            self._frames[codec] = codec.encode(before), codec.encode(after)
        return self._frames[codec]

    def observation(
        self, texts: Sequence[str], codec: Codec, author: Author = Author.TOOL
    ) -> list[int]:
        return codec.encode_plain("\n".join(texts))

    def demonstration(
        self, messages: Sequence[Mapping[str, Any]], codec: Codec, tools: Sequence[ToolSpec] = ()
    ) -> list[tuple[str, list[int]]]:
        before, rest = split_opening(messages)
        task = Task(id="demonstration", messages=tuple(before))
        runs = [("prompt", self.prompt(task, tools, codec))]
        for position, message in enumerate(rest):
            role = message.get("role")
            if role == "assistant":
                calls = calls_of(message)
                if len(calls) > 1:
                    raise ValueError(
                        f"a message has {len(calls)} calls, but a rollout stops at the first: "
                        "give each a message of its own"
                    )
                text = content_of(message) + "".join(self._render_call(*call) for call in calls)
                if position == len(rest) - 1:
                    text += codec.end_of_turn
                runs.append(("model", codec.encode(text)))
            elif role == "tool":
                head, tail = self.frame(None, codec)
                runs.append(
                    ("tool", [*head, *self.observation([content_of(message)], codec), *tail])
                )
            else:
                raise ValueError(f"message of {role!r} after the first assistant message")
        return runs

    def _render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        if len(arguments) != 1:
            raise ValueError(f"tool call {name!r} has {len(arguments)} arguments: a tag takes one")
        (argument,) = arguments.values()
        return self._call.replace("{tool}", name).replace("{argument}", str(argument))


def _usage(tools: Sequence[ToolSpec]) -> str:
    return "\n\n".join(tool.usage for tool in tools if tool.usage)
