"""Writes the demonstrations that the tiny policy is warmed up on: traces that the filter has kept.

The demonstrator stands for a large model as AutoAgent. It knows the form of thoughts, calls and
answers, and its traces are of all kinds:

- one in five answers with something else that was found, or with what was asked about;
- of those that answer right, two in five name something else in their reasoning;
- it makes calls that are not needed, some of them the same again;
- where a tool wants an edition it guesses, and corrects itself after the error.

The filter (filter.py) then refuses wrong answers, and traces of fewer than two calls. With
`--no-errors`, as in the paper, it also refuses traces with an error, although each was corrected.
The program prints how many each criterion refuses. Every fifth row is an exercise in reading
(exercises.py). Tools and observations are those of the player (roles.py), in encyclopedias of their
own: no fact is learnt by heart.

    python -m toolwright.script world/demonstrations.py --output demonstrations.jsonl --seed 1

One line of the file is one conversation, {"messages": [{"role", "content"}, ...]}, as
`engine render` reads it; its first message is the prompt with the question's tools.
"""

from __future__ import annotations

import json
import random
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from engine.api import ToolSpec
from tasks.judging import words
from tasks.worlds.demonstrations import Messages, Transcript, write_conversations
from tasks.worlds.encyclopedia import Encyclopedia, Question
from tasks.worlds.questions import EASY, HARD, other_encyclopedias
from tasks.worlds.relations import RELATIONS
from toolwright.script import Output
from toolwright.types import Task

from ..filter import trace_filter
from ..protocol import AutoAgent
from .exercises import exercises
from .refused import KIND, refusal
from .roles import EDITIONS, Actor, fits, tool_set

COUNT = 12_000
DEMONSTRATED = 4  # rows behind which an exercise comes
WRONG = 0.2
INCONSISTENT = 0.4  # of right answers: the reasoning names something else
MORE = {EASY: 0.8, HARD: 0.3}  # by hops: one more call than the question takes
AGAIN = 0.3  # of these, the same call again
RETRIES = 0.05  # of errors: the same call again before it is corrected
RECIPE = Path(__file__).resolve().parents[1] / "recipe.toml"
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeTrace:
    """A trace, all of whose errors were corrected. reasons: why the filter refuses it; empty =
    kept."""

    messages: Messages
    reasons: tuple[str, ...]


def traces(seed: int) -> Iterator[MadeTrace]:
    """Endless, whatever the filter says of them; easy and hard questions in turn."""
    draw = random.Random(f"demonstrator {seed}")
    task = tomllib.loads(RECIPE.read_text(encoding="utf-8"))["task"]
    protocol = AutoAgent(**task["protocol_options"])
    for book, questions in other_encyclopedias(draw):
        for question in questions:
            one = TraceDemonstrator(book, question, draw)
            answer = one.act()
            found = trace_filter(
                correct=words.exact_match(answer, question.answers),
                n_validation_errors=one.errors,
                n_calls=one.calls,
            )
            told = Task(id="d", messages=tuple(one.messages[:1]))
            opening = protocol.opening(told, [_spec(tool) for tool in one.tools])
            yield MadeTrace(messages=[*opening, *one.messages[1:]], reasons=found.reasons)


def kept(seed: int, *, no_errors: bool, refused: Counter[str]) -> Iterator[Messages]:
    """Endless: traces that pass.

    no_errors: a trace with a corrected error is refused too, as in the paper. refused: counts of
    traces by reason; "kept" counts those without one, "traces" all.
    """
    for one in traces(seed):
        reasons = [why for why in one.reasons if no_errors or why != KIND]
        refused.update(reasons or ["kept"])
        refused["traces"] += 1
        if not reasons:
            yield one.messages


class TraceDemonstrator(Transcript):
    """One trace of one question."""

    def __init__(self, book: Encyclopedia, question: Question, draw: random.Random) -> None:
        super().__init__(question.text)
        self._book, self._question, self._draw = book, question, draw
        self._actor = Actor(book)
        self._seen: list[str] = []
        self._asked: list[tuple[Json, str]] = []
        self._edition = ""
        self.tools = tool_set(question.text)
        self.calls = self.errors = 0

    def act(self) -> str:
        """Writes the trace; returns its answer."""
        question, draw = self._question, self._draw
        for relation, about in zip(question.path, question.chain, strict=False):
            self._look_up(self._tool_for(relation), about, relation)
        if draw.random() < MORE[question.hops]:
            self._one_more()
        gold = question.chain[-1]
        others = [one for one in (question.chain[0], *self._seen) if one != gold]
        answer = draw.choice(others) if draw.random() < WRONG else gold
        reasoned = draw.choice(others) if draw.random() < INCONSISTENT else answer
        self.says(f"<think>the answer is {reasoned}.</think><answer>{answer}</answer>")
        return answer

    def _one_more(self) -> None:
        """A call that the question does not need."""
        new = [
            (tool, name)
            for tool in self.tools
            for name in (self._question.chain[0], *self._seen)
            if self._kind_of(tool) == self._kind(name) and (tool, name) not in self._asked
        ]
        again = not new or self._draw.random() < AGAIN
        tool, name = self._asked[-1] if again else self._draw.choice(new)
        self._look_up(tool, name, next(iter(tool["returns"]["properties"])))

    def _look_up(self, tool: Json, name: str, relation: str) -> None:
        """A call, and its corrections until it is made."""
        self._asked.append((tool, name))
        function = tool["function"]
        wanted = list(function["parameters"]["properties"])
        arguments = {wanted[0]: name}
        if len(wanted) > 1:
            arguments["edition"] = self._edition or self._draw.choice(EDITIONS)
        thought = f"{relation} of {name}"
        while not self._call(tool, arguments, thought):
            if self._draw.random() >= RETRIES:
                (arguments["edition"],) = function["parameters"]["properties"]["edition"]["enum"]
        self._edition = arguments.get("edition", "")

    def _call(self, tool: Json, arguments: Mapping[str, str], thought: str) -> bool:
        function = tool["function"]
        call = json.dumps({"name": function["name"], "arguments": arguments})
        self.says(f"<think>{thought}</think><tool_call>{call}</tool_call>")
        self.calls += 1
        if not fits(function, arguments):
            self.errors += 1
            self.returns(_json(refusal(function)))
            return False
        told = {**function, "returns": tool["returns"]}
        found = self._actor.observation(told, arguments)
        self._seen += [one for one in found.values() if one not in self._seen]
        self.returns(_json(found))
        return True

    def _tool_for(self, relation: str) -> Json:
        return next(one for one in self.tools if relation in one["returns"]["properties"])

    def _kind_of(self, tool: Json) -> str:
        return RELATIONS[next(iter(tool["returns"]["properties"]))].of

    def _kind(self, name: str) -> str:
        return next(kind for kind, names in self._book.entities.items() if name in names)


def _practised(
    demonstrated: Iterator[Messages], practice: Iterator[Messages]
) -> Iterator[Messages]:
    while True:
        yield from islice(demonstrated, DEMONSTRATED)
        yield next(practice)


def main(
    *,
    output: Output,
    seed: int = 0,
    count: Annotated[int, "conversations, exercises too"] = COUNT,
    no_errors: Annotated[bool, "the paper's filter"] = False,
) -> None:
    """Write the demonstrations that the filter keeps."""
    counts: Counter[str] = Counter()
    demonstrated = kept(seed, no_errors=no_errors, refused=counts)
    write_conversations(output, _practised(demonstrated, exercises(seed)), count)
    made, kept_of_them = counts.pop("traces"), counts.pop("kept")
    refused = "".join(f", {name} {count / made:.0%}" for name, count in counts.most_common())
    print(f"{made} traces: kept {kept_of_them / made:.0%}{refused}: {output}")


def _json(found: Json) -> str:
    return json.dumps(found, ensure_ascii=False)


def _spec(tool: Json) -> ToolSpec:
    function = tool["function"]
    return ToolSpec(
        name=function["name"],
        description=function["description"],
        arguments_schema=function["parameters"],
    )
