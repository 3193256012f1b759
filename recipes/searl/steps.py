"""A step of SEARL after the plan: subtask, thinking, then a tool call or an answer. Pure.

    <subtask> ST_k: text </subtask> <thinking> ... </thinking>
    <tool_call> {"name": ..., "arguments": {...}} </tool_call>  or
    <answer> ... \\boxed{...} ... </answer>

Exactly one of each, in that order. Tag names are a template's. Source: SEARL (arXiv 2604.07791),
section 3.1, prompts of appendix F; its tags differ between prompts, hence `StepTags`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from toolwright.reading import action_ends
from toolwright.reading.action_ends import Grammar, counted
from toolwright.reading.actions import call_in
from toolwright.reading.answers import last_box

from .words import TAGS, StepTags

PLACEHOLDERS = frozenset({"", "...", "…", "answer", "your answer", "final answer"})
"""Texts of a box that are no answer: what prompts show as an example is no answer."""

_SUBTASK = re.compile(r"\s*ST_?\d+\s*(:.*)?", re.IGNORECASE | re.DOTALL)


def violations(text: str, tags: StepTags = TAGS) -> list[str]:
    """What is wrong with a step, in this order: unpaired_TAG, need_one_TAG, need_one_action, order,
    subtask_id, tool_json, no_boxed. Empty: nothing."""
    names = (tags.subtask, tags.thinking, tags.call, tags.answer)
    places = _places(text, names, tags.call)
    opened = {name: places[f"<{name}>"] for name in names}
    closed = {name: places[f"</{name}>"] for name in names}
    found = [f"unpaired_{name}" for name in names if not _paired(opened[name], closed[name])]
    if found:
        return found
    once = (tags.subtask, tags.thinking)
    found = [f"need_one_{name}" for name in once if len(opened[name]) != 1]
    actions = [name for name in (tags.call, tags.answer) for _ in opened[name]]
    if len(actions) != 1:
        found.append("need_one_action")
    if found:
        return found
    (action,) = actions
    in_order = (tags.subtask, tags.thinking, action)
    if any(closed[one][0] > opened[other][0] for one, other in pairwise(in_order)):
        found.append("order")
    inside = {name: _inside(text, name, opened[name][0], closed[name][0]) for name in in_order}
    if _SUBTASK.fullmatch(inside[tags.subtask]) is None:
        found.append("subtask_id")
    if action == tags.call and not _is_call(inside[action]):
        found.append("tool_json")
    if action == tags.answer and boxed(inside[action]) is None:
        found.append("no_boxed")
    return found


def boxed(text: str) -> str | None:
    """What stands in the last whole \\boxed{...}; None without one, or with a placeholder in it."""
    content = last_box(text)
    return None if content is None or content.lower() in PLACEHOLDERS else content


def final_answer(text: str, tags: StepTags = TAGS) -> str | None:
    """What is boxed in the last answer of a text."""
    start = text.rfind(f"<{tags.answer}>")
    if start < 0:
        return None
    return boxed(text[start:].partition(f"</{tags.answer}>")[0])


def _places(text: str, names: Sequence[str], call: str) -> dict[str, list[int]]:
    """Where each tag stands. Inside a string of a call's JSON, a tag is text."""
    places: dict[str, list[int]] = {}
    for name in names:
        places |= {f"<{name}>": [], f"</{name}>": []}
    json = (action_ends.Tags(f"<{call}>", f"</{call}>"),)
    for place in counted(text, Grammar(ends=tuple(places), json=json)).ends:
        places[place.tag].append(place.start)
    return places


def _paired(opened: list[int], closed: list[int]) -> bool:
    """Each opening tag is closed before the next one opens."""
    if len(opened) != len(closed):
        return False
    return all(one < other for one, other in zip(opened, closed, strict=True)) and all(
        end < start for end, start in zip(closed, opened[1:], strict=False)
    )


def _inside(text: str, name: str, start: int, end: int) -> str:
    return text[start + len(name) + 2 : end]


def _is_call(text: str) -> bool:
    call = call_in(text)
    return not call.fault and call.given
