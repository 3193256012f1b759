"""How VerlTool's software engineering agent speaks (arXiv:2509.01055, appendix F.6).

The token layout of a trajectory, each line a chat message of its own:

    prompt           what to do and the session's functions; the repository's path and the issue
    action 0         a thought, <function=NAME><parameter=KEY>VALUE</parameter></function>
    observation 0    what the function printed, a message of `role`
    action 1, ...
    last action      <function=submit></function>

Functions, their text form and the stop come from the tool (`swe`): this knows none of their names.

Invariants
- Pure, and it never raises for anything that a policy writes. Blocks are read by the tool's
  service; it refuses anything else, which costs its turn.
- Only the tool's own `done` ends a trajectory normally. A message without a call ends it too, as
  NO_ACTION_IN_OUTPUT or EMPTY_OUTPUT, and nothing is verified.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import engine.api as api
from toolwright.reading.actions import Tags
from toolwright.text.filling import filled
from toolwright.text.sections import sections
from toolwright.types import Task

PROMPTS = sections(Path(__file__).with_name("prompts.txt"))
"""Prompts of the agent; our own words, for the paper prints no prompt of this task. `system` has
{functions}, what the tools say of themselves, `task` the repository's {path} and the {issue}."""
FUNCTION, PARAMETER = ("<function=", "</function>"), ("<parameter=", "</parameter>")


def written_call(name: str, parameters: Mapping[str, Any]) -> str:
    """A call as the tool reads it. A value that holds the end of a parameter ends there."""
    lines = [
        f"{PARAMETER[0]}{key}>{_framed(value)}{PARAMETER[1]}" for key, value in parameters.items()
    ]
    return "\n".join((f"{FUNCTION[0]}{name}>", *lines, FUNCTION[1]))


def _framed(value: Any) -> str:
    """The tool takes one line break off each end: a value with its own gets another."""
    text = str(value)
    return f"\n{text}\n" if text.startswith("\n") or text.endswith("\n") else text


class Swe(api.Chat):
    """Options: the prompts `system` (with {functions}) and `task` (with {path} and {issue}); `path`
    of the repository, as the policy reads it; `role` of an observation."""

    def __init__(
        self,
        *,
        system: str = PROMPTS["system"],
        task: str = PROMPTS["task"],
        path: str = "/testbed",
        role: str = "user",
    ) -> None:
        super().__init__(call_open=FUNCTION[0], call_close=FUNCTION[1], role=role)
        api.needs("{functions}", system, "protocol_options.system")
        api.needs("{issue}", task, "protocol_options.task")
        self._system, self._task, self._path = system, task, path

    def prompt(self, task: Task, tools: Sequence[api.ToolSpec], codec: api.Codec) -> list[int]:
        return codec.chat_ids(self._messages(task, tools, codec.guarded))

    def opening(self, task: Task, tools: Sequence[api.ToolSpec]) -> list[Mapping[str, Any]]:
        return self._messages(task, tools, str)

    def shown(self, task: Task, tools: Sequence[api.ToolSpec]) -> list[Mapping[str, Any]]:
        """None: a chat template would ask for calls in JSON."""
        return []

    def stops(self, tools: Sequence[api.ToolSpec], codec: api.Codec) -> tuple[str, ...]:
        ends = [stop for tool in tools for stop in tool.stop_strings]
        return tuple(dict.fromkeys([*ends, codec.end_of_turn]))

    def json_calls(self, tools: Sequence[api.ToolSpec], codec: api.Codec) -> tuple[Tags, ...]:
        return ()

    def decide(self, text: str, stop: str, view: api.View, codec: api.Codec) -> api.Decision:
        if stop == codec.end_of_turn:
            return api.nothing_done(text.removesuffix(codec.end_of_turn))
        return api.Calls(calls=(api.read_call(text, stop, view.tools),))

    def _messages(
        self, task: Task, tools: Sequence[api.ToolSpec], guarded: Callable[[str], str]
    ) -> list[Mapping[str, Any]]:
        functions = "\n\n".join(tool.usage or tool.description for tool in tools)
        told = filled(self._system, {"functions": guarded(functions)})
        issue = "\n\n".join(api.content_of(message) for message in api.opening(task))
        asked = filled(self._task, {"path": self._path, "issue": guarded(issue)})
        return [
            {"role": "system", "content": api.OwnText(told)},
            {"role": "user", "content": api.OwnText(asked)},
        ]

    def _written(self, message: Mapping[str, Any]) -> str:
        calls = api.calls_of(message)
        if len(calls) > 1:
            raise ValueError(
                f"a message with {len(calls)} calls, where a rollout stops at the first: make a "
                "message of each"
            )
        return api.content_of(message) + "".join(written_call(*call) for call in calls)
