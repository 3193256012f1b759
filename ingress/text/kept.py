"""Text of conversations that the engine keeps, so that a request may name a response and send new
messages alone. Pure.

The HTTP half holds nothing: any worker reads a conversation back, also after a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from ingress.errors import ApiError
from ingress.types import Message, ToolCall


def written(messages: Sequence[Message]) -> bytes:
    """Messages as the engine keeps them."""
    return orjson.dumps(messages)


def read_kept(pieces: Iterable[bytes]) -> list[Message]:
    """Inverse of `written`, for several pieces in order."""
    return [_message(one) for piece in pieces if piece for one in orjson.loads(piece)]


def _message(given: dict[str, Any]) -> Message:
    calls = tuple(ToolCall(**one) for one in given.pop("calls"))
    return Message(**given, calls=calls)


def not_kept(response: str) -> ApiError:
    """The refusal of a response that is not known, in OpenAI's words: clients look for the code."""
    return ApiError(
        f"Previous response with id '{response[:200]}' not found.",
        code="previous_response_not_found",
        param="previous_response_id",
    )
