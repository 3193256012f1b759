"""The text of a chat template around observations, and whether rollouts agree with it. Pure.

A rollout never renders a conversation again: it appends the frame of an observation, which is found
once by rendering a sentinel. This module finds frames, and how a template writes a tool's text:
unchanged, trimmed, or as JSON. It also compares a rollout with a new rendering of its conversation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from engine.types import Codec

_ACTION = "toolwright-action-sentinel"
_OBSERVATION = "toolwright-observation-sentinel"
_PROBE = ' \n<p> "quoted" back\\slash\nnext\tline \u00e9 {x} & \n '
"""Characters that some templates change: blanks at the edges, quotes, escapes."""
_CALL_ID = "call00000"
"""An id in the form that Mistral requires."""
_THOUGHT_OF, _NUMBER = "toolwright-thought", "toolwright-number"
_THOUGHT = re.compile(r"(?:<think>)?[^<>]{0,200}</think>\s*")
SHOWN = 60
"""Longest quotation of a difference, in characters."""

Write = Callable[[str], str]


def _as_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _as_ascii_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def _out_of_json(text: str) -> str:
    return str(json.loads(f'"{text}"', strict=False))


WRITERS: tuple[tuple[Write, Write], ...] = (
    (str, str),
    (str.strip, str),
    (_as_json, _out_of_json),
    (_as_ascii_json, _out_of_json),
    (lambda text: _as_json(text.strip()), _out_of_json),
)
"""How templates write a tool's text, each with its inverse. Quotation marks around JSON belong to
the frame."""

TemplateClass = Literal["append-only", "strips thinking", "not splittable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Texts around the observations of one turn."""

    before: str
    between: str
    """Text between two observations."""
    after: str
    """Text after the last one, up to the next generation prompt."""
    write: Write
    """Turns an observation into what the template writes."""
    read: Write
    """The inverse of `write`. Raises ValueError for a text that was cut inside an escape."""


def find_frame(codec: Codec, role: str) -> Frame:
    """Frame of observations with this role.

    Raises ValueError if the template refuses the messages, leaves an observation out, or changes
    its text in an unknown way.
    """
    refused: ValueError | None = None
    for extra in ({}, {"tool_call_id": _CALL_ID, "name": "tool"}):
        observed = {"role": role, "content": _OBSERVATION, **extra}
        opening = [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": _ACTION},
        ]
        try:
            # Searched in one rendering: templates write a last assistant message in another way
            # than one that more follows, Qwen3 with an empty thinking block.
            whole = codec.chat([*opening, observed])
            probed = codec.chat([*opening, {**observed, "content": _PROBE}])
        except ValueError as error:
            refused = refused or error
            continue
        head, _, rest = whole.partition(_ACTION)
        before, found, after = rest.partition(_OBSERVATION)
        if not found:
            raise ValueError(f"the chat template writes no message of role {role!r}")
        lead = head + _ACTION + before
        write, read = _writer(probed, lead, after)
        between = _between(codec, opening, observed)
        return Frame(before=before, between=between, after=after, write=write, read=read)
    assert refused is not None  # both ways were tried
    raise refused


def _between(codec: Codec, opening: list[dict[str, str]], observed: Mapping[str, Any]) -> str:
    """Text between two observations of one turn; a line break if the template refuses two."""
    try:
        two = codec.chat([*opening, observed, observed]).split(_OBSERVATION)
    except ValueError:
        return "\n"
    return two[1] if len(two) == 3 else "\n"


def _writer(probed: str, lead: str, after: str) -> tuple[Write, Write]:
    for write, read in WRITERS:
        if probed == lead + write(_PROBE) + after:
            return write, read
    raise ValueError(
        "the chat template changes a tool's text in an unsupported way (neither unchanged, nor "
        "trimmed, nor as JSON), so observations cannot be appended to a rollout: use a template "
        "that writes tool messages plainly"
    )


def template_class(codec: Codec, role: str) -> tuple[TemplateClass, str]:
    """The template's class and the reason for it, "" for append-only.

    A rollout with two observations and three assistant messages is compared with its messages,
    rendered. Equal texts are append-only. Texts that differ only in thoughts of earlier turns strip
    thinking. Everything else is not splittable.
    """
    try:
        frame = find_frame(codec, role)
        rolled, messages = _rollout(codec, frame, role)
        again = codec.chat(messages, generation_prompt=False)
    except ValueError as error:
        return "not splittable", str(error)
    again = again.rstrip().removesuffix(codec.end_of_turn)
    if again == rolled:
        return "append-only", ""
    plain, plain_again = _THOUGHT.sub("", rolled), _THOUGHT.sub("", again)
    if "".join(plain.split()) == "".join(plain_again.split()):
        return "strips thinking", "thoughts of earlier turns; a rollout keeps them"
    there, here = next(_differences(rolled, again), ("", ""))
    return "not splittable", f"a rollout has {there!r} where the template writes {here!r}"


def _rollout(codec: Codec, frame: Frame, role: str) -> tuple[str, list[dict[str, str]]]:
    """Text of a rollout with two observations, and its messages."""
    messages = [{"role": "user", "content": "x"}]
    text = codec.chat(messages)
    written = _written_action(codec, text)
    for turn in (1, 2, 3):
        thought = f"<think>\n{_THOUGHT_OF} {turn}\n</think>\n\n"
        if text.rstrip().endswith("</think>"):
            thought = ""  # the template has closed an empty thought
        text += written.replace(_NUMBER, str(turn))
        messages.append({"role": "assistant", "content": f"{thought}{_ACTION} {turn}"})
        if turn < 3:
            observed = f"{_OBSERVATION} {turn}"
            text += frame.before + frame.write(observed) + frame.after
            messages.append({"role": role, "content": observed})
    return text, messages


def _written_action(codec: Codec, prompt: str) -> str:
    """An action with a thought, as the template writes a last message.

    If the template drops thoughts, it is the text of a policy. `_NUMBER` stands for the turn's
    number.
    """
    action, thought = f"{_ACTION} {_NUMBER}", f"<think>\n{_THOUGHT_OF} {_NUMBER}\n</think>\n\n"
    closed, opened = (prompt.rstrip().endswith(tag) for tag in ("</think>", "<think>"))
    content = action if closed else thought + action
    message = {"role": "assistant", "content": content}
    last = codec.chat([{"role": "user", "content": "x"}, message], generation_prompt=False)
    if last.startswith(prompt) and action in last and (closed or _THOUGHT_OF in last):
        return last.removeprefix(prompt).partition(action)[0] + action
    return content.removeprefix("<think>\n") if opened else content


def _differences(one: str, other: str) -> Iterator[tuple[str, str]]:
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            start = max(0, place - SHOWN // 3)
            yield one[start : start + SHOWN], other[start : start + SHOWN]
