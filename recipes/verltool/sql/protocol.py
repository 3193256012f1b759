"""How an SQL agent speaks: it thinks, queries a database, and answers with a statement.

The token layout of a trajectory (VerlTool, arXiv:2509.01055, table 13 and appendix on SQL):

    - prompt           what to do, the database, and the question
    - action 0         a thought and a query, up to </sql>
    - observation 0    <observation> rows, and how many turns are left </observation>, said by TOOL
    - ...
    - last action      a thought and the answer, up to </solution>

The answer is a call like a query: the tool runs it, gives its rows to the record, and ends the
trajectory. So a recipe has one turn more than queries.

Pure, and it never raises for anything that a policy writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from engine.api import (
    Codec,
    Decision,
    End,
    Options,
    Tagged,
    ToolSpec,
    View,
    content_of,
    needs,
    opening,
)
from toolwright.text.filling import filled
from toolwright.text.sections import sections
from toolwright.types import StopReason, Task

PROMPTS = sections(Path(__file__).with_name("prompts.txt"))
"""What the policy is told, in our own words: `rules`, with {turns}, the number of queries. Then
follows `described` for a task whose metadata have a schema, with {engine}, {schema} and
{knowledge}, or `published` for a question that brings its schema along. Both have {question}."""
ENGINE, NO_KNOWLEDGE = "SQLite", "none"
QUERY_END, SOLUTION_END = "</sql>", "</solution>"


class SqlOptions(Options):
    """Options of the protocol."""

    queries: int = Field(5, ge=0)
    """Number of queries that may be made before the answer."""
    prompt: str | None = None
    """With {question}; "" = the task's messages as they are."""
    observation: str = "\n<observation>\n{text}\n</observation>\n"


class SqlAgent(Tagged):
    """An agent that queries a database."""

    def __init__(self, **options: Any) -> None:
        given = SqlOptions(**options)
        super().__init__(observation=given.observation)
        self._queries, self._template = given.queries, given.prompt
        if given.prompt:
            needs("{question}", given.prompt, "protocol_options.prompt")

    def prompt(self, task: Task, tools: Sequence[ToolSpec], codec: Codec) -> list[int]:
        return codec.chat_ids(self.opening(task, tools))

    def opening(self, task: Task, tools: Sequence[ToolSpec]) -> list[Mapping[str, Any]]:
        """Messages of the prompt: the last one of a user is the question."""
        messages = opening(task)
        schema = str(task.metadata.get("schema") or "")
        template = self._template
        if template is None:
            template = PROMPTS["rules"] + PROMPTS["described" if schema else "published"]
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
