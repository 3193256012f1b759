"""How an SQL agent speaks: it thinks, queries a database, and answers with a statement.

The token layout of a trajectory (VerlTool, arXiv:2509.01055, table 13 and appendix on SQL):

    prompt           what to do, the database, and the question
    action 0         a thought and a query, up to </sql>
    observation 0    <observation> rows, and how many turns are left </observation>, said by TOOL
    ...
    last action      a thought and the answer, up to </solution>

The answer is a call like a query: the tool runs it, gives its rows to the record, and ends the
trajectory. So a recipe has one turn more than queries.

Pure, and it never raises for anything that a policy writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.api import Codec, Decision, End, Tagged, ToolSpec, View, content_of, opening
from toolwright.text.filling import filled
from toolwright.types import StopReason, Task

from .prompts import DESCRIBED, ENGINE, NO_KNOWLEDGE, PUBLISHED, RULES

QUERY_END, SOLUTION_END = "</sql>", "</solution>"


class SqlAgent(Tagged):
    """Options: `queries` that may be made before the answer, the `prompt` with {question} ("" = the
    task's messages as they are), and the `observation` with {text}."""

    def __init__(
        self,
        *,
        queries: int = 5,
        prompt: str | None = None,
        observation: str = "\n<observation>\n{text}\n</observation>\n",
    ) -> None:
        super().__init__(observation=observation)
        if queries < 0:
            raise ValueError(f"protocol_options.queries = {queries}: write a number from 0 on")
        if prompt and "{question}" not in prompt:
            raise ValueError("protocol_options.prompt needs {question}")
        self._queries = queries
        self._template = prompt

    def prompt(self, task: Task, tools: Sequence[ToolSpec], codec: Codec) -> list[int]:
        return codec.chat_ids(self.opening(task, tools))

    def opening(self, task: Task, tools: Sequence[ToolSpec]) -> list[Mapping[str, Any]]:
        """Messages of the prompt: the last one of a user is the question."""
        messages = opening(task)
        schema = str(task.metadata.get("schema") or "")
        template = self._template
        if template is None:
            template = RULES + (DESCRIBED if schema else PUBLISHED)
        asked = [place for place, one in enumerate(messages) if one.get("role") == "user"]
        if template and asked:
            told = {
                "engine": str(task.metadata.get("engine") or ENGINE),
                "schema": schema,
                "knowledge": str(task.metadata.get("knowledge") or NO_KNOWLEDGE),
                "question": content_of(messages[asked[-1]]),
                "turns": str(self._queries),
            }
            messages[asked[-1]] = {"role": "user", "content": filled(template, told)}
        return messages

    def decide(self, text: str, stop: str, view: View, codec: Codec) -> Decision:
        if stop == QUERY_END and view.turn >= self._queries:
            return End(reason=StopReason.MAX_TURNS)
        return super().decide(text, stop, view, codec)

    def demonstration(
        self, messages: Sequence[Mapping[str, Any]], codec: Codec, tools: Sequence[ToolSpec] = ()
    ) -> list[tuple[str, list[int]]]:
        """As a rollout has it: an answer ends with its tag, without the end of the turn."""
        runs = super().demonstration(messages, codec, tools)
        author, said = runs[-1]
        end = codec.encode(codec.end_of_turn)
        if author == "model" and content_of(messages[-1]).endswith(SOLUTION_END):
            runs[-1] = author, said[: len(said) - len(end)]
        return runs
