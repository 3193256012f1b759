"""How SEARL's agent speaks: a plan, then steps of subtask, thinking and one call or the answer.

The token layout of a trajectory (arXiv 2604.07791, released code):

    prompt           the plan prompt and the question
    action 0         the plan                                      trained as every action
    observation 0    the execution prompt, said by SYSTEM: words, question, plan, tools, and what
                     the memory recommends; a budget of its own
    action 1, ...    a step; observation 1, ... what its call came to, said by TOOL
    last action      the step with the answer

The memory is asked between action 0 and action 1, once: the protocol reads the plan and calls the
tool `plan` with a query for each subtask; the tool answers with the execution prompt and makes what
it found callable. Without a memory the protocol says the execution prompt itself.

Invariants
- Pure, and it never raises for anything that a policy writes.
- A plan that cannot be read costs its reward, not the trajectory: the whole task is then ST1.
- The policy cannot call the tool `plan` itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import engine.api as api
from toolwright.text.filling import filled
from toolwright.text.schemas import signature
from toolwright.text.sections import sections
from toolwright.types import Author, Task

from .plan import NoPlan, Plan, parse, whole_task
from .steps import final_answer
from .words import Words

PROMPTS = sections(Path(__file__).with_name("prompts.txt"))
"""Prompts before the plan, and before the steps.

Words in braces are replaced: {question}, {plan}, {most} (subtasks), {base_tools}, {tools} (those
that the memory recommends), {create} (the tool that makes tools). The texts are our own words.
"""
CREATE = "create_and_execute"
CREATES = (CREATE, "create_and_execute_mcp")
"""Names of the tool that makes tools: ours, and that of the paper's listing 1. A call under either
name goes to the tool that the session has."""


class SearlOptions(Words):
    """Options of the protocol; PROMPTS says which words in braces its texts have."""

    query: Literal["steps", "title"] = "steps"
    """What the memory is asked for a subtask: its steps, or its title and steps."""
    memory: bool = True
    """False never asks the memory."""
    role: str = "tool"
    system_role: str = "system"
    plan_prompt: str = PROMPTS["plan"]
    execution_prompt: str = PROMPTS["execution"]
    item: str = PROMPTS["item"]
    empty: str = PROMPTS["none"]
    execution_tokens: int = 4096
    """Budget of the execution prompt without a memory; the tool has an option of its own."""


class Searl(api.Chat):
    """SEARL's agent."""

    def __init__(self, **options: Any) -> None:
        self._options = given = SearlOptions(**options)
        self.tags = given.tags
        super().__init__(
            call_open=f"<{self.tags.call}>",
            call_close=f"</{self.tags.call}>",
            role=given.role,
            system_role=given.system_role,
        )
        self._answer_end = f"</{self.tags.answer}>"
        words = {"most": str(given.max_subtasks), "create": CREATE}
        self._plan_prompt = filled(given.plan_prompt, words)
        self._head, place, self._tail = given.execution_prompt.partition("{tools}")
        self._shows_tools = bool(place)

    def prompt(self, task: Task, tools: Sequence[api.ToolSpec], codec: api.Codec) -> list[int]:
        return codec.chat_ids(self.opening(task, tools))

    def opening(self, task: Task, tools: Sequence[api.ToolSpec]) -> list[Mapping[str, Any]]:
        messages = api.opening(task)
        if not self._plan_prompt:
            return messages
        return [{"role": "system", "content": api.OwnText(self._plan_prompt)}, *messages]

    def functions(self, tools: Sequence[api.ToolSpec]) -> list[Mapping[str, Any]]:
        """None: tools stand in the execution prompt."""
        return []

    def stops(self, tools: Sequence[api.ToolSpec], codec: api.Codec) -> tuple[str, ...]:
        return (self.call_tags[1], self._answer_end, codec.end_of_turn)

    def ending(self, text: str, codec: api.Codec) -> str:
        return self._answer_end if text.endswith(self._answer_end) else super().ending(text, codec)

    def decide(self, text: str, stop: str, view: api.View, codec: api.Codec) -> api.Decision:
        body = text.removesuffix(codec.end_of_turn)
        if stop != self.call_tags[1] and self._answer_end in body:
            return api.Answer(text=final_answer(body, self.tags) or "")
        if view.turn == 0:
            return self._execution(text, body, view)
        if stop == self.call_tags[1]:
            return api.Calls(calls=(self._call(text, view),))
        return api.nothing_done(body)

    def plan_of(self, text: str, question: str) -> tuple[Plan, bool]:
        """The plan of an action, and whether it is the policy's own: one that cannot be read is
        the whole task."""
        try:
            return parse(
                text, self._options.max_subtasks, strict_sections=self._options.strict_sections
            ), True
        except NoPlan:
            return whole_task(question), False

    def _execution(self, text: str, body: str, view: api.View) -> api.Decision:
        question = _question(view.task)
        plan, own = self.plan_of(body, question)
        given = self._options
        base = [tool for tool in view.tools if tool.name != given.plan_tool]
        values = {
            "question": question,
            "plan": body.strip() if own else f"##ST1: {question}",
            "base_tools": "".join(self._described(tool) for tool in base),
            "create": _creating(view),
        }
        head, tail = filled(self._head, values), filled(self._tail, values)
        if not self._options.memory or all(
            tool.name != self._options.plan_tool for tool in view.tools
        ):
            words = f"{head}{self._options.empty if self._shows_tools else ''}{tail}"
            return api.Say(text=words, author=Author.SYSTEM, budget=self._options.execution_tokens)
        queries = [self._query(plan, node) for node in plan.order] if own else [body or question]
        asked = {
            "queries": queries,
            "question": question,
            "head": head,
            "tail": tail,
            "item": given.item if self._shows_tools else "",
            "empty": given.empty if self._shows_tools else "",
        }
        return api.Calls(calls=(api.Call(action=text, tool=given.plan_tool, arguments=asked),))

    def _query(self, plan: Plan, node: int) -> str:
        words = plan.query(node)
        return f"{plan.titles[node]}\n{words}" if self._options.query == "title" else words

    def _described(self, tool: api.ToolSpec) -> str:
        return filled(
            self._options.item,
            {
                "name": tool.name,
                "arguments": signature(tool.arguments_schema),
                "description": tool.description or tool.usage,
            },
        )

    def _call(self, text: str, view: api.View) -> api.Call:
        call = api.read_json_call(text, *self.call_tags)
        if call.tool == self._options.plan_tool:
            return api.Call(
                action=text, invalid_reason=f"there is no tool {self._options.plan_tool!r}"
            )
        return replace(call, tool=_creating(view)) if call.tool in CREATES else call


def _creating(view: api.View) -> str:
    """Name of the session's tool that makes tools; ours where it has none."""
    names = {tool.name for tool in view.tools}
    return next((name for name in CREATES if name in names), CREATE)


def _question(task: Task) -> str:
    """What was asked: the last message of a user, or the raw prompt."""
    asked = [api.content_of(one) for one in task.messages if one.get("role") == "user"]
    return asked[-1] if asked else task.prompt
