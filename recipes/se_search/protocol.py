"""How a search agent speaks: it thinks, searches, notes what it found, and answers.

The token layout of a trajectory (SE-Search, arXiv:2603.03293; Search-R1, AutoRefine):

    - prompt           what to do, and the question
    - action 0         anything, up to the first </search> or </answer>      trained as every action
    - observation 0    <documents> passages </documents>, raw text in the same turn, said by TOOL
    - action 1, ...    notes in <memory>, then the next search or the answer
    - last action      the one with the answer

The first search or answer that is opened and closed in the newly written text is the action,
wherever it stands. An action that is neither, or a search for nothing, is corrected: SYSTEM says
what an action looks like, and the turn counts.

Invariants
- Pure, and it never raises for anything that a policy writes.
- After t_max turns one more is sampled, in which only an answer is carried out.
- There is no call for the memory: its blocks are words of the policy, like its thoughts.
- With `forget_above` the context begins anew where it is full. It holds the question, the notes so
  far, and the last documents, which no note is about yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

import engine.api as api
from toolwright.reading.actions import Tags
from toolwright.text.filling import filled
from toolwright.types import Author, StopReason, Task

from .blocks import action_of, bodies
from .prompts import Styled

QUESTION = "{question}"


class SearchOptions(Styled):
    """Options of the protocol."""

    t_max: int = Field(5, ge=0)
    """Number of turns with a search."""
    prompt: str | None = None
    """With {question}; "" = the task's messages as they are, None = that of the style."""
    correction: str | None = None
    """Answer to an invalid action; "" = it ends the trajectory, None = that of the style."""
    observation: str = "\n<{documents}>{text}</{documents}>\n"
    forget_above: int = Field(0, ge=0)
    """Tokens of the context above which the question with the notes replaces it; 0 = never."""
    search_tool: str = "search"
    argument: str = "query"


class SeSearch:
    """A search agent."""

    def __init__(self, **options: Any) -> None:
        self._options = given = SearchOptions(**options)
        chosen = given.chosen
        self.tags = chosen.tags
        words = self.tags.named()
        self._prompt = filled(chosen.prompt if given.prompt is None else given.prompt, words)
        if self._prompt:
            api.needs(QUESTION, self._prompt, "prompt")
        said = chosen.correction if given.correction is None else given.correction
        self._correction = filled(said, words)
        before, _, after = api.needs("{text}", given.observation, "observation").partition("{text}")
        self._around = filled(before, words), filled(after, words)
        self._stops = (f"</{self.tags.search}>", f"</{self.tags.answer}>")
        self._frames: dict[api.Codec, tuple[list[int], list[int]]] = {}
        self._chat = api.Chat(role="user")

    def prompt(self, task: Task, tools: Sequence[api.ToolSpec], codec: api.Codec) -> list[int]:
        return codec.chat_ids(self.opening(task, tools))

    def opening(self, task: Task, tools: Sequence[api.ToolSpec]) -> list[Mapping[str, Any]]:
        """Messages of the prompt: the last one of a user is the question."""
        messages = api.opening(task)
        asked = [place for place, one in enumerate(messages) if one.get("role") == "user"]
        if self._prompt and asked:
            question = api.content_of(messages[asked[-1]])
            content = filled(self._prompt, {"question": question})
            messages[asked[-1]] = {"role": "user", "content": content}
        return messages

    def stops(self, tools: Sequence[api.ToolSpec], codec: api.Codec) -> tuple[str, ...]:
        return (*self._stops, codec.end_of_turn)

    def marks(self, tools: Sequence[api.ToolSpec], codec: api.Codec) -> tuple[str, ...]:
        return ()

    def json_calls(self, tools: Sequence[api.ToolSpec], codec: api.Codec) -> tuple[Tags, ...]:
        return ()

    def decide(self, text: str, stop: str, view: api.View, codec: api.Codec) -> api.Decision:
        body = text.removesuffix(codec.end_of_turn)
        action = action_of(body, self.tags)
        if action is not None and action.kind == "answer":
            return api.Answer(text=action.body)
        if action is not None and not action.empty:
            if view.turn >= self._options.t_max:
                return api.End(reason=StopReason.MAX_TURNS)
            asked = {self._options.argument: action.body}
            call = api.Call(action=text, tool=self._options.search_tool, arguments=asked)
            return api.Calls(calls=(call,))
        if view.turn >= self._options.t_max or not self._correction:
            return api.nothing_done(body)
        return api.Say(text=self._correction, author=Author.SYSTEM)

    def rewrite(self, view: api.View, codec: api.Codec) -> api.Rewrite | None:
        """The question with the notes so far and the last documents, where the context is full."""
        most = self._options.forget_above
        if not most or view.context <= most:
            return None
        messages = api.opening(view.task)
        asked = [place for place, one in enumerate(messages) if one.get("role") == "user"]
        if not asked:
            return None
        tag = self.tags.memory
        notes = [body for text in view.actions for body in bodies(text, tag)] if tag else []
        lines = [
            api.content_of(messages[asked[-1]]),
            *(f"<{tag}>{note}</{tag}>" for note in notes),
            view.seen.strip(),
        ]
        messages[asked[-1]] = {"role": "user", "content": "\n".join(lines)}
        return api.Rewrite(messages=tuple(messages), cause="full")

    def frame(
        self, stop: str | None, codec: api.Codec, author: Author = Author.TOOL
    ) -> tuple[list[int], list[int]]:
        """Around documents, the tags; around a correction, nothing but a line, and a new turn of
        the assistant where it had ended its turn."""
        if author is Author.SYSTEM:
            if stop == codec.end_of_turn:
                return self._chat.frame(stop, codec)
            return codec.encode("\n"), []
        if codec not in self._frames:
            before, after = self._around
            self._frames[codec] = codec.encode(before), codec.encode(after)
        return self._frames[codec]

    def observation(
        self, texts: Sequence[str], codec: api.Codec, author: Author = Author.TOOL
    ) -> list[int]:
        return codec.encode_plain("\n".join(texts))

    def demonstration(
        self,
        messages: Sequence[Mapping[str, Any]],
        codec: api.Codec,
        tools: Sequence[api.ToolSpec] = (),
    ) -> list[tuple[str, list[int]]]:
        """A message of the assistant is an action: it ends with its first search or answer, or with
        its turn; it raises ValueError if it goes on. Role `tool` are documents, `system` a
        correction."""
        before, rest = api.split_opening(messages)
        task = Task(id="demonstration", messages=tuple(before))
        runs = [("prompt", self.prompt(task, tools, codec))]
        stop = codec.end_of_turn
        for message in rest:
            role = message.get("role")
            if role == "assistant":
                text = api.content_of(message) + "".join(map(self._written, api.calls_of(message)))
                text, found, beyond = api.stop_cut(text, self._stops)
                if beyond.strip():
                    raise ValueError(f"a message of the assistant goes on after {found}")
                stop = found or codec.end_of_turn
                runs.append(("model", codec.encode(text if found else text + stop)))
            elif role in ("tool", "system"):
                author = Author.TOOL if role == "tool" else Author.SYSTEM
                head, tail = self.frame(stop, codec, author)
                said = self.observation([api.content_of(message)], codec, author)
                runs.append(("tool", [*head, *said, *tail]))
            else:
                raise ValueError(f"message of {role!r} after the first assistant message")
        return runs

    def _written(self, call: tuple[str, Mapping[str, Any]]) -> str:
        """A structured call as the policy would write it."""
        name, arguments = call
        tool, argument = self._options.search_tool, self._options.argument
        if name != tool or set(arguments) != {argument}:
            raise ValueError(
                f"tool call {name!r}: the policy can call {tool!r} alone, with {argument!r}"
            )
        return f"<{self.tags.search}>{arguments[argument]}</{self.tags.search}>"
