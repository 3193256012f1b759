"""SEARL's group hook: what a group's rollouts did to the memory, and what their steps stand for.

Invariants
- With `memory_iteration` in the tasks' metadata a group's tools wait until the next iteration, and
  its canonical names are those of the version that its rollouts saw.
- The memory changes once a group, however often the hook runs: the request's key holds a digest of
  what it says.
- Only the best trajectory's tools are registered. Canonical names are over the memory and the
  candidates of all rollouts, so that tools which meet in no memory still meet in one anchor.
- A memory that does not answer is no result: the hook raises, and is run again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal

from pydantic import Field, PrivateAttr

from engine.api import Score
from toolwright import json_data
from toolwright.memory.v1 import memory_pb2 as pb
from toolwright.memory.v1 import memory_pb2_grpc
from toolwright.reading.tool_arguments import (
    function_of,
    in_words,
    object_schema,
    schemas,
    signature,
)
from toolwright.rpc.channel import call, open_channel
from toolwright.rpc.options import TOKEN_VARIABLE
from toolwright.types import Event, RewardPart, Status, ToolErrorKind, Trajectory

from .course import Course, Step, read
from .protocol import CREATES
from .rewards import WEIGHTS, best_trajectory
from .score import refused
from .subgraph import Holes, tool_graph
from .words import Words

ANSWER_S = 30.0
NO_TOOL = (ToolErrorKind.UNKNOWN_TOOL, ToolErrorKind.INVALID_ACTION)
"""A call that no tool has seen."""
ITERATION = "memory_iteration"
"""Key of a task's metadata: the iteration that its group began in, RUN.STEP."""
PLAN = "plan"
"""The anchor of plans, where they have one."""


class MemoryHook(Words):
    """The group hook, with its options."""

    memory: str = ""
    """Address of `memory serve`; "" = no memory."""
    delta: float | None = None
    mode: Literal["", "greedy", "union_find"] = ""
    """How the memory merges; "" = its own way."""
    merge_check: bool = False
    registers: bool = Field(True, alias="register")
    """False registers no tool."""
    min_reward_to_register: float | None = None
    """Least reward of the best trajectory whose tools are registered."""
    holes: Holes = "bypass"
    redundant: float = WEIGHTS["redundant"]
    """Weight of a tool that is made although a tool like it was recommended."""
    plan_anchor: bool = False
    anchor_base_tools: bool = True
    reserved: Sequence[str] = ()
    """More names that no tool may have."""
    _stub: Any = PrivateAttr(None)

    async def __call__(self, group: Sequence[Trajectory]) -> list[Score | None]:
        courses = {
            trajectory.id: read(trajectory, self)
            for trajectory in group
            if trajectory.status is not Status.ERRORED and trajectory.turns
        }
        living = [trajectory for trajectory in group if trajectory.id in courses]
        merged = await self._merged(living, courses) if self.memory and living else None
        names = {one.trajectory_id: dict(one.names) for one in merged.rollouts} if merged else {}
        base = frozenset(_base(courses))
        return [
            self._score(one, courses[one.id], names.get(one.id, {}), merged, base)
            if one.id in courses
            else None
            for one in group
        ]

    async def _merged(
        self, living: Sequence[Trajectory], courses: Mapping[str, Course]
    ) -> pb.MergeGroupResponse:
        """Raises ServiceError or TransportError if the memory does not answer."""
        if self._stub is None:
            channel = open_channel(self.memory, os.environ.get(TOKEN_VARIABLE, ""))
            self._stub = memory_pb2_grpc.MemoryServiceStub(channel)
        request = self.request(living, courses)
        answer: pb.MergeGroupResponse = await call(self._stub.MergeGroup, request, timeout=ANSWER_S)
        return answer

    def request(
        self, living: Sequence[Trajectory], courses: Mapping[str, Course]
    ) -> pb.MergeGroupRequest:
        """What the group did, under a key that no other group has."""
        versions = [version for one in living for version in one.weight_versions]
        iteration = str(living[0].task.metadata.get(ITERATION) or "")
        request = pb.MergeGroupRequest(
            step=max((version.step for version in versions), default=0),
            rollouts=[self._rollout(one.id, courses[one.id]) for one in living],
            registers=self._best(living),
            delta=self.delta,
            mode=f"MERGE_MODE_{self.mode or 'unspecified'}".upper(),
            merge_check=self.merge_check,
            reserved=sorted({*CREATES, self.plan_tool, *self.reserved, *_base(courses)}),
            counts=_counts(courses.values()),
            iteration=iteration or None,
        )
        digest = sha256(request.SerializeToString(deterministic=True)).hexdigest()
        # A resumed run goes on under the name of the run: its groups are merged in one order.
        lineage = versions[0].lineage if versions else "none"
        run = iteration.rpartition(".")[0] or lineage
        request.group = f"{run}/{living[0].group_id}/{digest[:16]}"
        return request

    def _best(self, living: Sequence[Trajectory]) -> str:
        """Id of the trajectory whose tools are registered, "" for none."""
        outcomes = [one.reward for one in living]
        steps = [
            [part.value for part in one.reward_parts if part.turn is not None] for one in living
        ]
        best = best_trajectory(outcomes, steps)
        least = self.min_reward_to_register
        enough = least is None or outcomes[best] >= least
        return living[best].id if self.registers and enough else ""

    def _rollout(self, trajectory: str, course: Course) -> pb.RolloutTools:
        phi: dict[int, list[str]] = {}
        uses: dict[str, pb.ToolUse] = {
            name: pb.ToolUse(name=name) for name in dict.fromkeys(course.recommended)
        }
        for step in course.steps:
            name = step.made if step.creates and step.worked else step.tool
            if not name or name not in course.added or step.call is None:
                continue
            use = uses.setdefault(name, pb.ToolUse(name=name))
            use.calls += 1
            use.successes += step.worked
            use.seconds += max(0.0, step.call.outcome.run_s)
            if step.subtask is not None:
                phi.setdefault(step.subtask, []).append(name)
        out = pb.RolloutTools(
            trajectory_id=trajectory,
            candidates=[_candidate(step) for step in course.steps if _is_candidate(step)],
            uses=uses.values(),
        )
        if course.plan is not None:
            of_subtasks = {node: list(dict.fromkeys(tools)) for node, tools in phi.items()}
            _, edges = tool_graph(course.plan.nodes, course.plan.edges, of_subtasks, self.holes)
            for one, other in edges:
                edge = out.edges.add(to=other)
                setattr(edge, "from", one)
                setattr(edge, "count", 1)  # noqa: B010 - a field of the message
        return out

    def _score(
        self,
        trajectory: Trajectory,
        course: Course,
        names: Mapping[str, str],
        merged: pb.MergeGroupResponse | None,
        base: frozenset[str],
    ) -> Score:
        anchors = {
            step.turn: (anchor,)
            for step in course.steps
            if (anchor := self._anchor(step, course, names, base))
        }
        if self.plan_anchor:
            anchors[0] = (PLAN,)
        events = []
        if merged is not None:
            data: dict[str, Any] = {"version": float(merged.version)}
            if own := [one.name for one in merged.refused if one.trajectory_id == trajectory.id]:
                data["refused"] = own
            events.append(Event(kind="memory_merged", turn=0, data=data))
        return Score(parts=list(self._remade(course, names)), anchors=anchors, events=tuple(events))

    def _anchor(
        self, step: Step, course: Course, names: Mapping[str, str], base: frozenset[str]
    ) -> str:
        """What the step stands for; "" for nothing: no call, no readable name, no such tool."""
        if step.call is None or not step.tool:
            return ""
        if step.creates:
            return names.get(step.made, step.made)
        if step.tool in course.added:
            return names.get(step.tool, step.tool)
        return step.tool if self.anchor_base_tools and step.tool in base else ""

    def _remade(self, course: Course, names: Mapping[str, str]) -> Iterator[RewardPart]:
        """Tools that were made although one like them was recommended."""
        recommended = {names.get(name, name) for name in course.recommended}
        for step in course.steps:
            if _is_candidate(step) and names.get(step.made) in recommended and self.redundant:
                yield RewardPart(name="remade", value=self.redundant, turn=step.turn)


def _is_candidate(step: Step) -> bool:
    return step.registers and step.worked and bool(step.made)


def _candidate(step: Step) -> pb.ToolNode:
    """The tool with a schema as its session has it."""
    given = dict(step.arguments or {})
    code, inputs = str(given.get("code", "")), given.get("inputs") or {}
    arguments = given.get("arguments")
    words = in_words(arguments)
    schema = object_schema(arguments) or {"type": "object", "properties": {}}
    if words is not None:
        function = function_of(code, step.made)
        takes = signature(function) if function is not None else None
        if takes is not None:
            schema["properties"] = schemas(words, takes.names, inputs)
            schema["required"] = list(takes.required)
    node = pb.ToolNode(
        name=step.made,
        description=str(given.get("description", "")),
        code=code,
        arguments=words or "",
        returns=str(given.get("returns", "")),
        inputs=[json.dumps(inputs, sort_keys=True)],
    )
    node.arguments_schema.CopyFrom(json_data.struct(schema))
    return node


def _base(courses: Mapping[str, Course]) -> Iterator[str]:
    """Tools that were called and that every session has: their calls came to something."""
    for course in courses.values():
        for step in course.steps:
            known = step.call is not None and step.call.outcome.error not in NO_TOOL
            if known and step.tool and step.tool not in course.added:
                yield step.tool


def _counts(courses: Any) -> dict[str, int]:
    found = dict.fromkeys(("rollouts", "created", "refused", "retrieved", "called", "reusing"), 0)
    for course in courses:
        called = sum(step.tool in course.recommended for step in course.steps)
        found["rollouts"] += 1
        found["retrieved"] += course.retrieved
        found["called"] += called
        found["reusing"] += called > 0
        for step in course.steps:
            found["created"] += _is_candidate(step)
            found["refused"] += step.creates and refused(step)
    return found
