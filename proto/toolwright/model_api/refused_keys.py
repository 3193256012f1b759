"""Keys of a body that one server does not accept, by its refusals. Pure.

A refusal of a number names keys too: vLLM's of a prompt that is too long names `max_tokens` and the
other name. So a key is given up only where the sentence says that the key is not taken.

Invariant: a key that is given up is no longer sent, so every refusal is answered once at most.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Body = dict[str, Any]

REPLACED = {"max_tokens": "max_completion_tokens"}
"""Keys that some models take in chat only under another name."""
CHOICES = ("top_p", "temperature")
"""Keys that some models do not let a client choose. Where a server takes either, the temperature
says more."""
SPARED = ("stream_options", "seed")
"""Keys that change nothing of what is measured; without a seed the same request may bring another
text."""
_NOT_TAKEN = re.compile(
    r"unsupported|not supported|n't supported|not support|n't support|cannot both|can't both"
    r"|not both|only one of|only the default|deprecated|unrecognized|unknown|unexpected"
    r"|not (?:allowed|permitted|accepted)|extra inputs|no longer|removed"
)
_LONGEST = 2000
"""Characters of a refusal that are searched."""


class RefusedKeys:
    """Keys and values that one server at one address does not accept."""

    def __init__(self) -> None:
        self.keys: set[str] = set()

    def adapted(self, body: Mapping[str, Any]) -> Body:
        """The body as this server takes it."""
        left = {key: value for key, value in body.items() if key not in self.keys}
        renamed = {
            other: body[key] for key, other in REPLACED.items() if key in self.keys and key in body
        }
        return left | renamed

    def left_out(self, body: Mapping[str, Any]) -> list[str]:
        """Keys of the body that the server gets under no name."""
        return sorted(key for key in body if key in self.keys and key not in REPLACED)

    def fix(self, key: str) -> str:
        """Key that replaces the key in later requests."""
        if key in REPLACED:
            return f"requests have {REPLACED[key]} instead"
        return "requests go out without it, so the server's own value applies"

    def learn(self, refusal: str, sent: Mapping[str, Any]) -> str | None:
        """The key that the refusal of `sent` gives up; None if the request itself is refused."""
        key = refused_key(refusal, sent)
        if key is not None:
            self.keys.add(key)
        return key


def refused_key(refusal: str, sent: Mapping[str, Any]) -> str | None:
    """The key of `sent` that the server says it does not take."""
    refusal = refusal[:_LONGEST]
    if _NOT_TAKEN.search(refusal.lower()):
        chat = [key for key in REPLACED if "messages" in sent]
        for key in (*chat, *CHOICES):
            if key in sent and _is_named(refusal, key):
                return key
    return next((key for key in SPARED if key in sent and _is_named(refusal, key)), None)


def _is_named(refusal: str, key: str) -> bool:
    """`key` is a word of the refusal. A key that is also English counts only in quotation marks, or
    as a parameter: a model's name may hold it."""
    word = re.escape(key)
    if "_" in key:
        return re.search(rf"(?<![\w-]){word}(?![\w-])", refusal) is not None
    return (
        re.search(
            rf"(?P<quote>['\"`]){word}(?P=quote)"
            rf"|(?i:parameter|argument|field|key|value)s?(?: name)?:? {word}(?![\w-])"
            rf"|(?:^|[.:;,] ?){word} (?:is|does|may|can|has|isn't|cannot)\b",
            refusal,
        )
        is not None
    )
