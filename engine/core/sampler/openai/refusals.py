"""What a server's refusal means, and the sentence with its fix. Pure.

Invariant: a sentence holds neither the key nor more than `MOST_SAID` characters of the server's
answer.
"""

from __future__ import annotations

import email.utils
import time
from collections.abc import Mapping

from engine.core.sampler.wire.client import ServerRefused, ServerUnreachable
from engine.core.sampler.wire.events import WireError
from engine.errors import EngineError
from toolwright.model_api.deltas import MOST_SAID, said

LEAST_OF_A_KEY = 8
"""Fewest characters of a key that are hidden in a sentence that was cut inside the key."""
_MOST_BACKSLASHES = 4
"""Most backslashes before one character: JSON inside JSON inside a sentence."""
LONGEST_PAUSE_S = 120.0
"""Longest Retry-After that is obeyed. After a longer one the request is sent again at this time."""
FIRST_PAUSE_S = 2.0
"""Pause after a 429 without a Retry-After."""


class EndpointUnusable(EngineError):
    """No request to this endpoint can succeed: its address, key or model is wrong. It ends the
    evaluation."""


class RetryLater(ServerUnreachable):
    """The server wants a pause of `seconds`."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class WrongAddress(WireError):
    """The address belongs to no such API."""


class WrongKey(ServerRefused):
    """401 or 403."""


class NotFound(ServerRefused):
    """404: the path or the model."""


class NoCredit(ServerRefused):
    """The account has no credit left: no pause helps."""


Refusal = RetryLater | ServerRefused | WireError


def refusal(
    where: str, status: int, headers: Mapping[str, str], body: bytes, *, key_env: str, model: str
) -> Refusal:
    """The error for a response with another status than 200."""
    words = said(body)
    answer = f"{where} answered {status}{f': {words}' if words else ''}"
    if status == 402 or (status == 429 and b"insufficient_quota" in body):
        return NoCredit(
            f"{answer}; top the account up: the same command goes on where this one ended"
        )
    if status == 429:
        return RetryLater(answer, _retry_after(headers))
    if status in (408, 425) or status >= 500:
        if "retry-after" in {name.lower() for name in headers}:
            return RetryLater(answer, _retry_after(headers))
        return WireError(answer)
    if 300 <= status < 400:
        to = headers.get("Location", "")[:MOST_SAID]
        return WrongAddress(f"{answer}; it leads to {to!r}: name that address in sampler.endpoints")
    if is_page(headers, body):
        return WrongAddress(_page(where))
    if status in (401, 403):
        fix = (
            f"the environment variable {key_env} (sampler.key_env) holds no key that it takes"
            if key_env
            else "name the environment variable that holds its key in sampler.key_env"
        )
        return WrongKey(f"{answer}; {fix}")
    if status in (404, 405):
        return NotFound(
            f"{answer}; correct sampler.model (now {model!r}), sampler.api or sampler.endpoints: "
            "the engine adds /v1 to a path without a version, and uses an address that ends in "
            "/chat/completions as it is"
        )
    return ServerRefused(answer)


def without_key(text: str, key: str) -> str:
    """`text` with `***` in place of the key. It also hides the key's beginning where the text was
    cut, and a key that JSON spelled with backslashes. Takes len(text) * len(key) steps at most."""
    least = min(len(key), LEAST_OF_A_KEY)
    kept: list[str] = []
    at = done = 0
    while least and (at := text.find(key[0], at)) >= 0:
        end, matched = _match(text, at, key)
        if matched >= least:
            kept += (text[done:at], "***")
            at = done = end
        else:
            at += 1
    return "".join((*kept, text[done:]))


def _match(text: str, at: int, key: str) -> tuple[int, int]:
    """Where the key's beginning at `at` ends, and how many of its characters stand there."""
    end, matched = at, 0
    while matched < len(key):
        found = end
        while found - end < _MOST_BACKSLASHES and text[found : found + 1] == "\\" != key[matched]:
            found += 1
        if text[found : found + 1] != key[matched]:
            break
        end, matched = found + 1, matched + 1
    return end, matched


def is_page(headers: Mapping[str, str], body: bytes) -> bool:
    kind = headers.get("Content-Type", "").lower()
    return kind.startswith("text/html") or body.lstrip()[:1] == b"<"


def not_the_api(where: str, headers: Mapping[str, str], body: bytes) -> WrongAddress:
    """The error for a response of status 200 that is neither a stream nor JSON."""
    if is_page(headers, body):
        return WrongAddress(_page(where))
    return WrongAddress(
        f"{where} answers, but not as an OpenAI-compatible API does: {said(body)!r}; correct "
        "sampler.endpoints"
    )


def _page(where: str) -> str:
    return (
        f"{where} answers with a web page, not as an API: correct sampler.endpoints (an API's "
        "address often begins with api. and ends in /v1)"
    )


def _retry_after(headers: Mapping[str, str]) -> float:
    """Pause in seconds; the header may also hold a date."""
    said = next((value for name, value in headers.items() if name.lower() == "retry-after"), "")
    try:
        seconds = float(said)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(said).timestamp() - time.time()
        except (TypeError, ValueError, OverflowError):
            return FIRST_PAUSE_S
    if not seconds >= 0:  # NaN too
        return FIRST_PAUSE_S
    return min(seconds, LONGEST_PAUSE_S)
