"""The six methods: how each decides. The README says where each is from and what differs here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from engine.api import Answer, Codec, Decision, Say, View, nothing_done
from toolwright.reading import actions
from toolwright.reading.answers import last_block
from toolwright.text.sections import sections
from toolwright.types import Author

from .protocol import (
    ANSWER_CLOSE,
    ANSWER_OPEN,
    SEARCH_CLOSE,
    SEARCH_OPEN,
    Prompting,
    question_of,
)

PROMPTS = sections(Path(__file__).with_name("prompts.txt"))
"""What the methods tell a policy, in our own words. Each is the option `words` of its method."""
Form = Literal["tags", "line", "finish"]


class Direct(Prompting):
    """The answer at once."""

    words = PROMPTS["direct"]
    searching = False


class ChainOfThought(Direct):
    """Thinking, then the answer."""

    words = PROMPTS["thought"]


class NaiveRag(Prompting):
    """One retrieval with the question, before any thought; then the answer."""

    words = PROMPTS["rag"]
    searches_first = True

    def ends(self) -> tuple[str, ...]:
        return (SEARCH_CLOSE, ANSWER_CLOSE)

    def decide(self, text: str, stop: str, view: View, codec: Codec) -> Decision:
        if view.turn == 0:
            return self.search(text, question_of(view.task))
        return super().decide(text, stop, view, codec)


class Ircot(NaiveRag):
    """Retrieval with the question, then with each sentence of the thinking (`steps` of them at
    most); then the policy is asked to read."""

    words = PROMPTS["ircot"]

    def __init__(self, *, steps: int = 4, **options: Any) -> None:
        super().__init__(**options)
        if steps < 0:
            raise ValueError(f"protocol_options.steps = {steps}: 0 or more sentences")
        self._steps = steps

    def ends(self) -> tuple[str, ...]:
        return ("\n", *super().ends())

    def decide(self, text: str, stop: str, view: View, codec: Codec) -> Decision:
        if view.turn == 0:
            return super().decide(text, stop, view, codec)
        answer = answer_of(text, "line")
        if answer is not None:
            return Answer(text=answer)
        if view.turn > self._steps:
            return Say(text=PROMPTS["ircot_read"])
        body = text.removesuffix(codec.end_of_turn)
        sentence = body.replace(SEARCH_OPEN, " ").replace(SEARCH_CLOSE, " ").strip()
        if ANSWER_OPEN in sentence or not any(letter.isalnum() for letter in sentence):
            return Say(text=PROMPTS["ircot_empty"])
        return self.search(text, sentence)


class SearchO1(Prompting):
    """Searches inside of the reasoning, each followed by a turn that condenses what was found."""

    words = PROMPTS["search_o1"]

    def __init__(self, *, searches: int = 5, **options: Any) -> None:
        super().__init__(**options)
        if searches < 0:
            raise ValueError(f"protocol_options.searches = {searches}: 0 or more")
        self._searches = searches

    def values(self) -> Mapping[str, str]:
        return {"searches": str(self._searches)}

    def ends(self) -> tuple[str, ...]:
        return (SEARCH_CLOSE, "</notes>", ANSWER_CLOSE)

    def next_cue(self, author: Author) -> str:
        return "<notes>" if author is Author.TOOL else ""

    def decide(self, text: str, stop: str, view: View, codec: Codec) -> Decision:
        made = len(view.calls)
        if stop == SEARCH_CLOSE:
            if made >= self._searches:
                return Say(text=PROMPTS["search_o1_enough"])
            begin, end = actions.last_span(text, SEARCH_OPEN, SEARCH_CLOSE)
            query = text[begin:end].strip() if begin >= 0 else ""
            return self.search(text, query) if query else Say(text=PROMPTS["search_o1_go_on"])
        if stop == "</notes>":
            left = made < self._searches
            return Say(text=PROMPTS["search_o1_go_on"] if left else PROMPTS["search_o1_enough"])
        return super().decide(text, stop, view, codec)


class ReAct(Prompting):
    """Lines of Thought, Action and Observation."""

    words = PROMPTS["react"]

    def __init__(self, *, observation: str = "{text}\n", **options: Any) -> None:
        super().__init__(observation=observation, **options)

    def cue(self) -> str:
        return "Thought:"

    def next_cue(self, author: Author) -> str:
        return "Thought:"

    def ends(self) -> tuple[str, ...]:
        return ("]\n", "Observation:")

    def around(self, stop: str | None, author: Author) -> tuple[str, str]:
        before, after = super().around(stop, Author.TOOL)
        return (" " if stop == "Observation:" else "Observation: ") + before, after

    def decide(self, text: str, stop: str, view: View, codec: Codec) -> Decision:
        body = text.removesuffix(codec.end_of_turn).removesuffix("Observation:")
        if not body.strip():
            return nothing_done(body)
        found = action_in(body)
        if found is None:
            return self.refuse(text, PROMPTS["react_form"])
        name, argument = found
        return Answer(text=argument) if name == "finish" else self.search(text, argument)


def action_in(text: str) -> tuple[Literal["search", "finish"], str] | None:
    """The first line `Action: Search[...]` or `Action: Finish[...]`; None without one.

    Case and a number after `Action` do not matter. What stands below that line is of another turn,
    which the policy made up.
    """
    for line in text.splitlines():
        head, colon, rest = line.partition(":")
        if not colon or head.lower().strip(" *#0123456789\t") != "action":
            continue
        name, bracket, inside = rest.partition("[")
        argument, closed, _ = inside.rpartition("]")
        if not (bracket and closed):
            continue
        kind = name.strip(" *\t").lower()
        if kind == "finish":
            return "finish", argument.strip()
        if kind == "search" and argument.strip():
            return "search", argument.strip()
    return None


def answer_of(text: str, form: Form) -> str | None:
    """The answer of a policy's last action, as its method writes one; None without.

    tags: between the tags. line: also where the line's end came before the closing tag. finish:
    of the action Finish.
    """
    if form == "finish":
        found = action_in(text)
        return found[1] if found and found[0] == "finish" else None
    answer = last_block(text)
    if answer is None and form == "line" and text.endswith("\n"):
        _, tag, rest = text.rpartition(ANSWER_OPEN)
        answer = rest.strip() or None if tag else None
    return answer
