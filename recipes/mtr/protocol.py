"""How MTR's AutoAgent speaks: it thinks, then makes one call or answers.

The token layout of a trajectory (the paper's own prompts are lost):

    prompt           what to do and the question's tools, then the question
    action 0         <think>...</think><tool_call>{"name", "arguments"}</tool_call>
    observation 0    JSON of the tool, or {"status": "error", ...}, a message of its own by TOOL
    action 1, ...
    last action      <think>...</think><answer>...</answer>

The tools are those that the session was opened with: each question has its own. A call that cannot
be read, or names another tool, reaches no tool. It is refused in the words of the tools' own
checks, so that the agent corrects itself.

Invariants
- Pure, and it never raises for anything that a policy writes.
- After `invalid_in_a_row` refused calls in a row nothing is carried out, not even an answer: the
  trace has ended in error (TOOL_EXCEPTION).
- With the tools off no tool is named in the prompt, and none is called.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

import engine.api as api
from toolwright.text.filling import filled
from toolwright.text.schemas import signature
from toolwright.text.sections import sections
from toolwright.types import StopReason, Task

from .answers import ANSWER, CALL, final_answer
from .forms import call_meant
from .traces import UNKNOWN_TOOL, invalid_in_a_row

PROMPTS = sections(Path(__file__).with_name("prompts.txt"))
"""Prompts of the agent; our own words, for the paper's prompts were never published.

`agent` has {tools} for a line of each tool, an `item` with {name}, {arguments} and {description}.
`closed` is for tasks whose tools are off.
"""
TOOLS, OFF = "tools", "off"
"""Key and value of a task's metadata that take its tools away: an evaluation suite's, say."""
PLACE = "{tools}"
LONGEST_NAME = 64
"""Characters of a tool's name that an error repeats; no tool has a longer one."""
_ANSWER_END = f"</{ANSWER}>"


class AutoAgentOptions(api.Options):
    """Options of the protocol."""

    tools: bool = True
    """False takes the tools away in every task."""
    prompt: str = PROMPTS["agent"]
    """With {tools}, or without: then the chat template shows them."""
    closed_prompt: str = PROMPTS["closed"]
    """The prompt if the tools are off; "" = no prompt."""
    item: str = PROMPTS["item"]
    """A line for each tool."""
    invalid_in_a_row: int = Field(3, ge=1)
    """Number of refused calls in a row that ends a trace."""
    lenient: bool = False
    """Read calls in the other forms that models write (`forms.py`): without tags, say."""


class AutoAgent(api.Chat):
    """MTR's agent."""

    def __init__(self, **options: Any) -> None:
        super().__init__(call_open=f"<{CALL}>", call_close=f"</{CALL}>")
        self._options = AutoAgentOptions(**options)

    def prompt(self, task: Task, tools: Sequence[api.ToolSpec], codec: api.Codec) -> list[int]:
        messages = self._messages(task, tools, codec.guarded)
        return codec.chat_ids(messages, tools=self.shown(task, tools))

    def opening(self, task: Task, tools: Sequence[api.ToolSpec]) -> list[Mapping[str, Any]]:
        return self._messages(task, tools, str)

    def offered(self, task: Task, tools: Sequence[api.ToolSpec]) -> Sequence[api.ToolSpec]:
        """None where they are off."""
        return tools if self._has_tools(task) else ()

    def shown(self, task: Task, tools: Sequence[api.ToolSpec]) -> list[Mapping[str, Any]]:
        return [] if PLACE in self._options.prompt else super().shown(task, tools)

    def stops(self, tools: Sequence[api.ToolSpec], codec: api.Codec) -> tuple[str, ...]:
        return (self.call_tags[1], _ANSWER_END, codec.end_of_turn)

    def ending(self, text: str, codec: api.Codec) -> str:
        return _ANSWER_END if text.endswith(_ANSWER_END) else super().ending(text, codec)

    def decide(self, text: str, stop: str, view: api.View, codec: api.Codec) -> api.Decision:
        if invalid_in_a_row(view.calls) >= self._options.invalid_in_a_row:
            return api.End(reason=StopReason.TOOL_EXCEPTION)
        if stop == self.call_tags[1]:
            return api.Calls(calls=(self._call(text, view),))
        body = text.removesuffix(codec.end_of_turn)
        answer = final_answer(body)
        if answer is None and (meant := self._meant(body, view)):
            return api.Calls(calls=(self._call(meant, view),))
        return api.nothing_done(body) if answer is None else api.Answer(text=answer)

    def demonstration(
        self,
        messages: Sequence[Mapping[str, Any]],
        codec: api.Codec,
        tools: Sequence[api.ToolSpec] = (),
    ) -> list[tuple[str, list[int]]]:
        """As Chat's. A conversation that begins with a message of the system was recorded with its
        prompt: that message stands in place of this one's, and its question's tools in it, or
        `tools` in the template where this one's prompt leaves them to it."""
        first, *rest = messages or [{}]
        if first.get("role") != "system":
            return super().demonstration(messages, codec, tools)
        text = api.content_of(first)
        off = not self._options.tools or text == self._options.closed_prompt
        # Without a prompt of its own it adds none to the recorded one; tools are the template's.
        bare = AutoAgent(prompt="", closed_prompt="")
        shown = () if off or PLACE in self._options.prompt else tools
        begun = [{"role": "system", "content": self._recorded(text, codec)}, *rest]
        return api.Chat.demonstration(bare, begun, codec, shown)

    def _recorded(self, said: str, codec: api.Codec) -> api.OwnText:
        """A recorded prompt as rollouts have it: what stands in the place of the tools is foreign,
        and so is all of it where it is another prompt than this one's."""
        if said == self._options.closed_prompt:
            return api.OwnText(said)
        head, _, tail = self._options.prompt.partition(PLACE)
        end = len(said) - len(tail)
        if end < len(head) or not (said.startswith(head) and said.endswith(tail)):
            return api.OwnText(codec.guarded(said))
        return api.OwnText(head + codec.guarded(said[len(head) : end]) + tail)

    def _has_tools(self, task: Task) -> bool:
        return self._options.tools and task.metadata.get(TOOLS) != OFF

    def _messages(
        self, task: Task, tools: Sequence[api.ToolSpec], guarded: Callable[[str], str]
    ) -> list[Mapping[str, Any]]:
        messages = api.opening(task)
        said = self._options.prompt if self._has_tools(task) else self._options.closed_prompt
        if not said:
            return messages
        listed = "".join(self._listed(tool) for tool in tools)
        said = said.replace(PLACE, guarded(listed))
        return [{"role": "system", "content": api.OwnText(said)}, *messages]

    def _listed(self, tool: api.ToolSpec) -> str:
        told = {
            "name": tool.name,
            "arguments": signature(tool.arguments_schema),
            "description": tool.description,
        }
        return filled(self._options.item, told)

    def _names(self, view: api.View) -> list[str]:
        return [tool.name for tool in view.tools] if self._has_tools(view.task) else []

    def _meant(self, text: str, view: api.View) -> str | None:
        return call_meant(text, self._names(view)) if self._options.lenient else None

    def _call(self, text: str, view: api.View) -> api.Call:
        call = api.read_json_call(text, *self.call_tags)
        if call.invalid_reason and (meant := self._meant(text, view)):
            call = api.read_json_call(meant, *self.call_tags)
        if call.invalid_reason:
            told: dict[str, Any] = {"type": "parse_error", "message": call.invalid_reason}
            return api.Call(action=text, tool=call.tool, invalid_reason=_error(told))
        names = self._names(view)
        if call.tool not in names:
            told = {"type": UNKNOWN_TOOL, "tool": call.tool[:LONGEST_NAME], "tools": names}
            return api.Call(action=text, tool=call.tool, invalid_reason=_error(told))
        return call


def _error(told: Mapping[str, Any]) -> str:
    """As the tools' own errors are (docs/tools/sources/simulated.md)."""
    return json.dumps({"status": "error", "error": told}, ensure_ascii=False)
