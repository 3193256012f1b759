"""Text of conversations that the engine keeps, so that a request may name a response and send new
messages alone. Pure.

The HTTP half holds nothing: any worker reads a conversation back, also after a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import orjson

from ingress.dialects.reading import MOST_MESSAGES
from ingress.errors import ApiError, wrong
from ingress.types import Message, ModelRequest, ToolCall


def written(messages: Sequence[Message]) -> bytes:
    """Messages as the engine keeps them."""
    return orjson.dumps(messages)


def read(pieces: Iterable[bytes]) -> list[Message]:
    """Inverse of `written`, for several pieces in order."""
    return [_message(one) for piece in pieces if piece for one in orjson.loads(piece)]


def _message(given: dict[str, Any]) -> Message:
    calls = tuple(ToolCall(**one) for one in given.pop("calls"))
    return Message(**given, calls=calls)


def continued(request: ModelRequest, pieces: Iterable[bytes]) -> ModelRequest:
    """The request with the messages of the response that it names. Raises ApiError for too many."""
    lead = request.instructions
    messages = (*request.messages[:lead], *read(pieces), *request.messages[lead:])
    if len(messages) > MOST_MESSAGES:
        raise wrong(
            "previous_response_id",
            f"the conversation has {len(messages)} messages, and {MOST_MESSAGES} are the most",
        )
    return replace(request, messages=messages)


def not_kept(response: str) -> ApiError:
    """The refusal of a response that is not known, in OpenAI's words: clients look for the code."""
    return ApiError(
        f"Previous response with id '{response[:200]}' not found.",
        code="previous_response_not_found",
        param="previous_response_id",
    )
