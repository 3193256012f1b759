"""What a trajectory of SEARL did, read from its record: plan, steps, tools that it made. Pure.

Nothing is remembered while it rolls out: a candidate is a call of `create_and_execute` that
worked, what the memory recommended is what the tool `plan` added to the session.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.api import read_json_call
from toolwright.reading.tool_arguments import function_of, in_words, object_schema, signature
from toolwright.types import CallRecord, ToolErrorKind, Trajectory

from .plan import NoPlan, Plan, parse
from .protocol import CREATE, CREATES
from .steps import violations
from .words import Words

LONGEST_CODE = 64_000

_SUBTASK = re.compile(r"\s*ST_?(\d{1,6})", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A turn after the plan. subtask: its number, None where it says none. call: None in a step
    without one. tool: the name that it calls, "" where none can be read."""

    turn: int
    text: str
    subtask: int | None = None
    call: CallRecord | None = None
    tool: str = ""
    arguments: Mapping[str, Any] | None = None
    wrong: tuple[str, ...] = ()
    """What is wrong with its form."""
    again: bool = False
    """It makes a tool that a step before it made."""

    @property
    def worked(self) -> bool:
        return self.call is not None and self.call.outcome.error is ToolErrorKind.NONE

    @property
    def creates(self) -> bool:
        return self.tool == CREATE

    @property
    def made(self) -> str:
        """Name of the tool that it makes or would make, "" where none can be read."""
        name = (self.arguments or {}).get("name") if self.creates else None
        return name if isinstance(name, str) else ""

    @property
    def registers(self) -> bool:
        """It makes a tool. The same once more is a call of it, as the tool service takes it."""
        return self.creates and not self.again

    @property
    def pair(self) -> str:
        """Tool and arguments, the same for every spelling of them."""
        return json.dumps([self.tool, self.arguments], sort_keys=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """plan: None where it could not be read. recommended: names of the memory's tools. added: of
    all tools that the session gained."""

    plan: Plan | None
    steps: tuple[Step, ...]
    recommended: tuple[str, ...] = ()
    added: frozenset[str] = frozenset()
    retrieved: int = 0


def read(trajectory: Trajectory, words: Words) -> Course:
    """What a trajectory did, as reward functions and group hooks see it."""
    texts = list(trajectory.metadata.get("texts", ()))
    calls = {call.turn: call for call in reversed(trajectory.calls)}
    added: list[str] = []
    recommended: list[str] = []
    for event in trajectory.events:
        if event.kind == "tools_added":
            names = [str(name) for name in event.data.get("names", ())]
            added += names
            if event.data.get("tool") == words.plan_tool:
                recommended += names
    asked = [call for call in trajectory.calls if call.tool == words.plan_tool]
    turns = (_step(turn, text, calls.get(turn), words) for turn, text in enumerate(texts) if turn)
    return Course(
        plan=_plan(texts[0], words) if texts else None,
        steps=tuple(_marked(turns)),
        recommended=tuple(recommended),
        added=frozenset(added),
        retrieved=sum(int(call.outcome.metrics.get("retrieved", 0)) for call in asked),
    )


def _marked(steps: Iterable[Step]) -> Iterator[Step]:
    """With `again` where a tool of the name is there already by an earlier step."""
    made: set[str] = set()
    for step in steps:
        yield replace(step, again=True) if step.made in made else step
        if step.worked and step.made:
            made.add(step.made)


def meets_format(arguments: Mapping[str, Any]) -> bool:
    """Whether a tool could be registered: its name is an identifier, its code parses and defines a
    plain function of that name, whose arguments are those that are described (spec of
    `create_and_execute`). The code is parsed and never run."""
    name, code = arguments.get("name"), arguments.get("code")
    if not isinstance(name, str) or not isinstance(code, str) or len(code) > LONGEST_CODE:
        return False
    if not name.isidentifier() or keyword.iskeyword(name):
        return False
    function = function_of(code, name)
    takes = signature(function) if function is not None else None
    if takes is None:
        return False
    if in_words(arguments.get("arguments")) is not None:
        return True  # words never contradict the function
    schema = object_schema(arguments.get("arguments"))
    if schema is None:
        return False
    return set(takes.required) <= set(schema["properties"]) <= set(takes.names)


def _plan(text: str, words: Words) -> Plan | None:
    try:
        return parse(text, words.max_subtasks, strict_sections=words.strict_sections)
    except NoPlan:
        return None


def _step(turn: int, text: str, call: CallRecord | None, words: Words) -> Step:
    tags = words.tags
    tool, arguments = "", None
    if call is not None:
        asked = read_json_call(call.action, f"<{tags.call}>", f"</{tags.call}>")
        tool, arguments = asked.tool, asked.arguments
        if tool in CREATES:
            tool = CREATE
    _, _, said = text.partition(f"<{tags.subtask}>")
    found = _SUBTASK.match(said)
    return Step(
        turn=turn,
        text=text,
        subtask=int(found[1]) if found else None,
        call=call,
        tool=tool,
        arguments=arguments,
        wrong=tuple(violations(text, tags)),
    )
