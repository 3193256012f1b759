"""Writes the demonstrations that the tiny policy is warmed up on: traces that the filter has kept.

The demonstrator stands for a large model as AutoAgent. It knows the form of thoughts, calls and
answers, and its traces are of all kinds:

- one in five answers with something else that was found, or with what was asked about;
- of those that answer right, two in five name something else in their reasoning;
- it makes calls that are not needed, some of them the same again;
- where a tool wants an edition it guesses, and corrects itself when it is told.

Then the filter (filter.py) takes away what answers wrong and what has fewer than two calls. With
`--no-errors`, as in the paper, it also takes away what has an error, although each was mended. How
many each criterion refuses is printed. Every fifth row is an exercise in reading (exercises.py).
Tools and observations are those of the player (roles.py), in encyclopedias of their own: nothing is
learnt from them by heart.

    python world/demonstrations.py --output demonstrations.jsonl --seed 1

One line of the file is one conversation, {"messages": [{"role", "content"}, ...]}, as
`engine render` reads it; its first message is the prompt with the question's tools.
"""

from __future__ import annotations

import argparse
import json
import random
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from exercises import exercises
from refused import KIND, refusal
from roles import EDITIONS, Actor, fits, tool_set
from task import EASY, ENCYCLOPEDIA, HARD, SHAPE

from engine.api import ToolSpec
from tasks.judging import words
from tasks.worlds.demonstrations import Messages, write_conversations
from tasks.worlds.encyclopedia import Encyclopedia, Question
from tasks.worlds.relations import RELATIONS
from toolwright.imports import load_file
from toolwright.types import Task

COUNT = 12_000
DEMONSTRATED = 4  # rows behind which an exercise comes
OF_ONE_ENCYCLOPEDIA = 96
WRONG = 0.2
INCONSISTENT = 0.4  # of right answers: the reasoning names something else
MORE = {EASY: 0.8, HARD: 0.3}  # by hops: one more call than the question takes
AGAIN = 0.3  # of these, the same call again
RETRIES = 0.05  # of errors: the same call again before it is corrected
MENDABLE = KIND
"""Of the filter's reasons, that of an error."""

FOLDER = Path(__file__).resolve().parents[1]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """A trace, all of whose errors were mended. reasons: why the filter refuses it; none = kept."""

    messages: Messages
    reasons: tuple[str, ...]


def traces(seed: int) -> Iterator[Demonstration]:
    """Endless, whatever the filter says of them; easy and hard questions in turn."""
    draw = random.Random(f"demonstrator {seed}")
    protocol = load_file(FOLDER / "protocol.py").AutoAgent(**_options())
    judge = load_file(FOLDER / "filter.py").trace_filter
    while True:
        book = Encyclopedia(draw.randrange(1 << 32) + ENCYCLOPEDIA + 1, SHAPE)
        half = OF_ONE_ENCYCLOPEDIA // 2
        easy, hard = (islice(book.questions("train", (hops,)), half) for hops in (EASY, HARD))
        for pair in zip(easy, hard, strict=True):
            for question in pair:
                one = Demonstrator(book, question, draw)
                answer = one.act()
                told = Task(id="d", messages=({"role": "user", "content": question.text},))
                found = judge(
                    correct=words.exact_match(answer, question.answers),
                    n_validation_errors=one.errors,
                    n_calls=one.calls,
                )
                opening = protocol.opening(told, [_spec(tool) for tool in one.tools])
                yield Demonstration(messages=[*opening, *one.messages], reasons=found.reasons)


def kept(seed: int, *, no_errors: bool, refused: Counter[str]) -> Iterator[Messages]:
    """Endless: those that pass. no_errors: a trace with an error is refused although it was mended,
    as in the paper. refused: is counted by reason, each trace under all of its own or under "kept",
    and all under "traces"."""
    for one in traces(seed):
        reasons = [why for why in one.reasons if no_errors or why != MENDABLE]
        refused.update(reasons or ["kept"])
        refused["traces"] += 1
        if not reasons:
            yield one.messages


class Demonstrator:
    """One trace of one question."""

    def __init__(self, book: Encyclopedia, question: Question, draw: random.Random) -> None:
        self._book, self._question, self._draw = book, question, draw
        self._actor = Actor(book)
        self._seen: list[str] = []
        self._asked: list[tuple[Json, str]] = []
        self._edition = ""
        self.tools = tool_set(question.text)
        self.messages: Messages = []
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
        self._says(f"<think>the answer is {reasoned}.</think><answer>{answer}</answer>")
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
        self._says(f"<think>{thought}</think><tool_call>{call}</tool_call>")
        self.calls += 1
        if not fits(function, arguments):
            self.errors += 1
            self._observes(refusal(function))
            return False
        told = {**function, "returns": tool["returns"]}
        found = self._actor.observation(told, arguments)
        self._seen += [one for one in found.values() if one not in self._seen]
        self._observes(found)
        return True

    def _tool_for(self, relation: str) -> Json:
        return next(one for one in self.tools if relation in one["returns"]["properties"])

    def _kind_of(self, tool: Json) -> str:
        return RELATIONS[next(iter(tool["returns"]["properties"]))].of

    def _kind(self, name: str) -> str:
        return next(kind for kind, names in self._book.entities.items() if name in names)

    def _says(self, text: str) -> None:
        self.messages.append({"role": "assistant", "content": text})

    def _observes(self, found: Json) -> None:
        self.messages.append({"role": "tool", "content": json.dumps(found, ensure_ascii=False)})


def write(path: Path, *, seed: int, count: int = COUNT, no_errors: bool = False) -> Counter[str]:
    """Writes `count` conversations, one a line, exercises among them; returns what became of all
    traces."""
    refused: Counter[str] = Counter()
    demonstrated = kept(seed, no_errors=no_errors, refused=refused)
    write_conversations(path, _practised(demonstrated, exercises(seed)), count)
    return refused


def _practised(
    demonstrated: Iterator[Messages], practice: Iterator[Messages]
) -> Iterator[Messages]:
    while True:
        yield from islice(demonstrated, DEMONSTRATED)
        yield next(practice)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write the demonstrations that the filter keeps.")
    parser.add_argument("--output", type=Path, required=True, help="JSONL file to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=COUNT, help="conversations, exercises too")
    parser.add_argument("--no-errors", action="store_true", help="the paper's filter")
    given = parser.parse_args(arguments)
    counts = write(given.output, seed=given.seed, count=given.count, no_errors=given.no_errors)
    made, kept_of_them = counts.pop("traces"), counts.pop("kept")
    refused = "".join(f", {name} {count / made:.0%}" for name, count in counts.most_common())
    print(f"{made} traces: kept {kept_of_them / made:.0%}{refused}: {given.output}")


def _spec(tool: Json) -> ToolSpec:
    function = tool["function"]
    return ToolSpec(
        name=function["name"],
        description=function["description"],
        arguments_schema=function["parameters"],
    )


def _options() -> Json:
    """How the recipe's agent is spoken to."""
    task = tomllib.loads((FOLDER / "recipe.toml").read_text(encoding="utf-8"))["task"]
    options: Json = task["protocol_options"]
    return options


if __name__ == "__main__":
    main()
