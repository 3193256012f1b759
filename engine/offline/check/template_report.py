"""Lines of `engine check` on a chat template and a recipe's protocol. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from engine.core.protocols import Protocol
from engine.core.protocols.chat import Chat
from engine.core.text.codec import HuggingFaceCodec
from engine.core.text.framing import template_class

NEAR = 0.8
"""Similarity (difflib's ratio) from which a name may be a misspelling of another."""
PROBE = "toolwright_probe"
TOOL = "tool"
"""Role of observations for protocols that write no messages after the prompt."""


def agents_report(codec: HuggingFaceCodec) -> Iterator[tuple[bool, str]]:
    """(is a warning, line) pairs: the template's class for what outside agents append, and whether
    it shows their tools."""
    if not _shows_tools(codec):
        yield (
            True,
            "chat template, outside agents: it does not show `tools`, so the policy never reads "
            "an agent's tools; take a template that does, or let the agent's prompt say them",
        )
    for role in ("tool", "user"):
        kind, why = template_class(codec, role)
        whole = kind == "not splittable"
        note = "; each request may be rendered as a whole" if whole else ""
        line = f"chat template, outside agents, role {role!r}: {kind}{f' ({why})' if why else ''}"
        yield whole, line + note


def _shows_tools(codec: HuggingFaceCodec) -> bool:
    messages = [{"role": "user", "content": "x"}]
    function = {"name": PROBE, "description": PROBE, "parameters": {"type": "object"}}
    try:
        return PROBE in codec.chat(messages, tools=[{"type": "function", "function": function}])
    except ValueError:
        return False


def template_report(
    codec: HuggingFaceCodec, protocols: Mapping[str, Protocol]
) -> Iterator[tuple[bool, str]]:
    """(is a warning, line) pairs.

    The first lines give the template's class for each role of observations. Then come variables
    that only one of template and recipe has.
    """
    chats = [one for one in protocols.values() if isinstance(one, Chat)]
    used = frozenset[str]().union(*(one.roles for one in chats))
    for role in sorted(used or {TOOL}):
        kind, why = template_class(codec, role)
        broken = kind == "not splittable" and role in used
        yield broken, f"chat template, role {role!r}: {kind}{f' ({why})' if why else ''}"
    try:
        read = codec.template_names()
    except ValueError as error:
        yield True, str(error)
        return
    if unset := sorted(read - codec.variables.keys()):
        yield (
            True,
            f"the chat template reads {', '.join(unset)}, which policy.template does not set: the "
            "template's defaults count; set those that the run depends on",
        )
    for name in sorted(codec.variables.keys() - read):
        near = get_close_matches(name, sorted(read), n=1, cutoff=NEAR)
        hint = f": did you mean {near[0]}?" if near else ""
        yield bool(near), f"policy.template: the chat template does not read {name}{hint}"
