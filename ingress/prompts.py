"""Prompts as the contract has them, and the one that is sent with the request. Pure but for the
tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterable

from ingress.link import ids_message
from ingress.text.tails import PromptIds, Tails
from ingress.types import Message, ModelRequest
from toolwright.ingress.limits import MOST_RESULT
from toolwright.ingress.v1 import ingress_pb2 as pb


def prompt_message(found: PromptIds, new: Iterable[Message], kind: str) -> pb.Prompt:
    """kind: tail or fresh. new: the messages after the matched call."""
    results = [
        pb.ReadResult(id=one.call_id, text=one.text[:MOST_RESULT])
        for one in new
        if one.role == "tool"
    ]
    ids = ids_message(found.token_ids, [(one.value, count) for one, count in found.authors])
    return pb.Prompt(results=results, **{kind: ids})  # type: ignore[arg-type]


def guessed(request: ModelRequest, tails: Tails) -> pb.Guess | None:
    """The prompt of a request that goes on from its last assistant message; None without such a
    message, or if the new ones cannot be rendered alone."""
    roles = [message.role for message in request.messages]
    if "assistant" not in roles:
        return None
    matched = len(roles) - roles[::-1].index("assistant")
    new = request.messages[matched:]
    found = tails.tail(new, request.tools, turn_ended=False) if new else None
    if found is None:
        return None
    return pb.Guess(matched=matched, prompt=prompt_message(found, new, "tail"))
