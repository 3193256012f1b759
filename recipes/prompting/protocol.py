"""What the prompting methods share: the prompt, the call of `search`, the frame, the answer.

A method writes on in one assistant turn: what comes back is appended as raw text where an action
stopped at a word of the method. Where the policy ended its turn instead, it comes back as a user's
message, and the policy's next turn begins.

Invariants
- Pure. Nothing that a policy writes raises, and all of it is read in linear time.
- A query never comes from what tools answered, only from the question or the policy's own words.
- The answer is read from the policy's last action alone: no prompt and no passage can hold it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.api import Answer, Call, Calls, Chat, Codec, Decision, ToolSpec, View, nothing_done
from toolwright.reading.actions import Tags
from toolwright.reading.answers import last_block
from toolwright.text.filling import filled
from toolwright.types import Author, Task

SEARCH_OPEN, SEARCH_CLOSE = "<search>", "</search>"
ANSWER_OPEN, ANSWER_CLOSE = "<answer>", "</answer>"
LONGEST_QUERY = 2000
"""Characters. Encoders read some 500 words of a query, and the search tool refuses 16,384."""


class Prompting(Chat):
    """One method. Options: `words` of the prompt, with {question}; `tool`, the one that takes
    `query`; `observation`, its answer with {text}. A method adds options of its own."""

    words = "{question}"
    searches_first = False
    """The question itself is the first query: the prompt ends with it inside of an open tag, and
    the first action is the policy's closing tag."""
    searching = True

    def __init__(
        self,
        *,
        words: str = "",
        tool: str = "search",
        observation: str = "\n<information>\n{text}\n</information>\n",
    ) -> None:
        super().__init__(role="user")
        self._words = words or self.words
        for name, text, place in (
            ("words", self._words, "{question}"),
            ("observation", observation, "{text}"),
        ):
            if place not in text:
                raise ValueError(f"protocol_options.{name} needs {place}")
        self._tool = tool
        self._before, _, self._after = observation.partition("{text}")

    def prompt(self, task: Task, tools: Sequence[ToolSpec], codec: Codec) -> list[int]:
        if self.searching and tools and all(tool.name != self._tool for tool in tools):
            there = ", ".join(tool.name for tool in tools)
            raise ValueError(f"there is no tool {self._tool!r}, only {there}: serve it, or name it")
        prompt = codec.chat_ids(self.opening(task, tools))
        if self.searches_first:
            query = codec.encode_plain(query_of(question_of(task)))
            return [*prompt, *codec.encode(f"{SEARCH_OPEN} "), *query]
        return [*prompt, *codec.encode(self.cue())]

    def opening(self, task: Task, tools: Sequence[ToolSpec]) -> list[Mapping[str, Any]]:
        """One message of a user; what the task has beside its question is left out."""
        values = {"question": question_of(task), **self.values()}
        return [{"role": "user", "content": filled(self._words, values)}]

    def values(self) -> Mapping[str, str]:
        """What else is put into the words."""
        return {}

    def cue(self) -> str:
        """What the policy's first words follow."""
        return ""

    def stops(self, tools: Sequence[ToolSpec], codec: Codec) -> tuple[str, ...]:
        return (*self.ends(), codec.end_of_turn)

    def json_calls(self, tools: Sequence[ToolSpec], codec: Codec) -> tuple[Tags, ...]:
        return ()

    def ends(self) -> tuple[str, ...]:
        """Words at which an action ends, beside the end of the turn."""
        return (ANSWER_CLOSE,)

    def frame(
        self, stop: str | None, codec: Codec, author: Author = Author.TOOL
    ) -> tuple[list[int], list[int]]:
        before, after = self.around(stop, author)
        head, tail = codec.encode(before), codec.encode(after)
        cue = codec.encode(self.next_cue(author))
        if stop != codec.end_of_turn:
            return head, [*tail, *cue]
        opens, closes = super().frame(stop, codec, author)
        return [*opens, *head], [*tail, *closes, *cue]

    def around(self, stop: str | None, author: Author) -> tuple[str, str]:
        """What stands before and after an observation, without the template's part."""
        return ("\n", "\n") if author is Author.SYSTEM else (self._before, self._after)

    def next_cue(self, author: Author) -> str:
        """What the policy's words after an observation follow."""
        return ""

    def search(self, text: str, query: str) -> Calls:
        """The call of an action, whatever it holds beside the query."""
        arguments = {"query": query_of(query)}
        return Calls(calls=(Call(action=text, tool=self._tool, arguments=arguments),))

    def refuse(self, text: str, reason: str) -> Calls:
        """A turn in which nothing is called, and the policy reads why."""
        return Calls(calls=(Call(action=text, tool=self._tool, invalid_reason=reason),))

    def decide(self, text: str, stop: str, view: View, codec: Codec) -> Decision:
        body = text.removesuffix(codec.end_of_turn)
        answer = last_block(body)
        return nothing_done(body) if answer is None else Answer(text=answer)


def question_of(task: Task) -> str:
    """What was asked: the text of the last message of a user, or the raw prompt."""
    asked = [one.get("content") for one in task.messages if one.get("role") == "user"]
    if not asked:
        return task.prompt
    if isinstance(asked[-1], str):
        return asked[-1]
    parts = asked[-1] if isinstance(asked[-1], list) else []
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
    return "".join(text for text in texts if isinstance(text, str))


def query_of(text: str) -> str:
    """A query on one line."""
    return " ".join(text[: 4 * LONGEST_QUERY].split())[:LONGEST_QUERY]
