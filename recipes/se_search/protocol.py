"""How a search agent speaks: it thinks, searches, notes what it found, and answers.

The token layout of a trajectory (SE-Search, arXiv:2603.03293; Search-R1, AutoRefine):

    prompt           what to do, and the question
    action 0         anything, up to the first </search> or </answer>      trained as every action
    observation 0    <documents> passages </documents>, raw text in the same turn, said by TOOL
    action 1, ...    notes in <memory>, then the next search or the answer
    last action      the one with the answer

The first search or answer that is opened and closed in the newly written text is the action,
wherever it stands. An action that is neither, or a search for nothing, is corrected: SYSTEM says
what an action looks like, and the turn counts.

Invariants
- Pure, and it never raises for anything that a policy writes.
- After t_max turns one more is sampled, in which only an answer is carried out.
- There is no call for the memory: its blocks are words of the policy, like its thoughts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.api import (
    Answer,
    Call,
    Calls,
    Chat,
    Codec,
    Decision,
    End,
    Say,
    ToolSpec,
    View,
    calls_of,
    content_of,
    nothing_done,
    opening,
    split_opening,
    stop_cut,
)
from toolwright.reading.actions import Tags
from toolwright.text.filling import filled
from toolwright.types import Author, StopReason, Task

from .blocks import action_of
from .prompts import style_of

QUESTION = "{question}"


class SeSearch:
    """Options: `style` and `tags` (see prompts.py), `t_max`, the `prompt` with {question} ("" = the
    task's messages as they are), the `correction` ("" = an invalid action ends the trajectory),
    the `observation` with {text}, and the `search_tool` with its `argument`."""

    def __init__(
        self,
        *,
        style: str = "se_search",
        tags: Mapping[str, str] | None = None,
        t_max: int = 5,
        prompt: str | None = None,
        correction: str | None = None,
        observation: str = "\n<{documents}>{text}</{documents}>\n",
        search_tool: str = "search",
        argument: str = "query",
    ) -> None:
        chosen = style_of(style, tags)
        self.tags = chosen.tags
        words = self.tags.named()
        if t_max < 0:
            raise ValueError(
                f"protocol_options.t_max = {t_max}: write a number of turns, from 0 on"
            )
        self._t_max = t_max
        self._prompt = filled(chosen.prompt if prompt is None else prompt, words)
        if self._prompt and QUESTION not in self._prompt:
            raise ValueError("protocol_options.prompt needs {question}")
        said = chosen.correction if correction is None else correction
        self._correction = filled(said, words)
        before, place, after = observation.partition("{text}")
        if not place:
            raise ValueError("protocol_options.observation needs {text}")
        self._around = filled(before, words), filled(after, words)
        self._tool, self._argument = search_tool, argument
        self._stops = (f"</{self.tags.search}>", f"</{self.tags.answer}>")
        self._frames: dict[Codec, tuple[list[int], list[int]]] = {}
        self._chat = Chat(role="user")

    def prompt(self, task: Task, tools: Sequence[ToolSpec], codec: Codec) -> list[int]:
        return codec.chat_ids(self.opening(task, tools))

    def opening(self, task: Task, tools: Sequence[ToolSpec]) -> list[Mapping[str, Any]]:
        """Messages of the prompt: the last one of a user is the question."""
        messages = opening(task)
        asked = [place for place, one in enumerate(messages) if one.get("role") == "user"]
        if self._prompt and asked:
            question = content_of(messages[asked[-1]])
            content = filled(self._prompt, {"question": question})
            messages[asked[-1]] = {"role": "user", "content": content}
        return messages

    def stops(self, tools: Sequence[ToolSpec], codec: Codec) -> tuple[str, ...]:
        return (*self._stops, codec.end_of_turn)

    def marks(self, tools: Sequence[ToolSpec], codec: Codec) -> tuple[str, ...]:
        return ()

    def json_calls(self, tools: Sequence[ToolSpec], codec: Codec) -> tuple[Tags, ...]:
        return ()

    def decide(self, text: str, stop: str, view: View, codec: Codec) -> Decision:
        body = text.removesuffix(codec.end_of_turn)
        action = action_of(body, self.tags)
        if action is not None and action.kind == "answer":
            return Answer(text=action.body)
        if action is not None and not action.empty:
            if view.turn >= self._t_max:
                return End(reason=StopReason.MAX_TURNS)
            asked = Call(action=text, tool=self._tool, arguments={self._argument: action.body})
            return Calls(calls=(asked,))
        if view.turn >= self._t_max or not self._correction:
            return nothing_done(body)
        return Say(text=self._correction, author=Author.SYSTEM)

    def frame(
        self, stop: str | None, codec: Codec, author: Author = Author.TOOL
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
        self, texts: Sequence[str], codec: Codec, author: Author = Author.TOOL
    ) -> list[int]:
        return codec.encode_plain("\n".join(texts))

    def demonstration(
        self, messages: Sequence[Mapping[str, Any]], codec: Codec, tools: Sequence[ToolSpec] = ()
    ) -> list[tuple[str, list[int]]]:
        """A message of the assistant is an action: it ends with its first search or answer, or with
        its turn; ValueError where it goes on. Role `tool` are documents, `system` a correction."""
        before, rest = split_opening(messages)
        task = Task(id="demonstration", messages=tuple(before))
        runs = [("prompt", self.prompt(task, tools, codec))]
        stop = codec.end_of_turn
        for message in rest:
            role = message.get("role")
            if role == "assistant":
                text = content_of(message) + "".join(map(self._written, calls_of(message)))
                text, found, beyond = stop_cut(text, self._stops)
                if beyond.strip():
                    raise ValueError(f"a message of the assistant goes on after {found}")
                stop = found or codec.end_of_turn
                runs.append(("model", codec.encode(text if found else text + stop)))
            elif role in ("tool", "system"):
                author = Author.TOOL if role == "tool" else Author.SYSTEM
                head, tail = self.frame(stop, codec, author)
                said = self.observation([content_of(message)], codec, author)
                runs.append(("tool", [*head, *said, *tail]))
            else:
                raise ValueError(f"message of {role!r} after the first assistant message")
        return runs

    def _written(self, call: tuple[str, Mapping[str, Any]]) -> str:
        """A structured call as the policy would write it."""
        name, arguments = call
        if name != self._tool or set(arguments) != {self._argument}:
            raise ValueError(
                f"tool call {name!r}: the policy can call {self._tool!r} alone, with "
                f"{self._argument!r}"
            )
        return f"<{self.tags.search}>{arguments[self._argument]}</{self.tags.search}>"
