"""OpenAI's legacy completions: a prompt that no template renders, as text or as token ids. Pure.

A request goes on from the call whose ids are the longest prefix of its own. So a client that sends
token ids gets one sequence; `return_token_ids` gives it those of a completion. A text is encoded
anew, so its ids may differ from those that the policy wrote, and then it forks there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from ingress.dialects.chat import error_body, read_sampling, usage_of
from ingress.dialects.reading import flag_at, stops_at, text_at, whole_at
from ingress.dialects.types import Dialect, ServerEvent
from ingress.errors import ApiError, wrong
from ingress.types import CallEnd, Message, ModelRequest, Said, TokenLogprob, Words
from toolwright.ingress.limits import MOST_CHOICES

_LARGEST_ID = 2**31 - 1


def read_request(body: object) -> ModelRequest:
    """The request of a JSON body. Raises ApiError, which names the wrong key."""
    if not isinstance(body, Mapping):
        raise ApiError("the body must be a JSON object")
    n = whole_at(body, "n", 1, MOST_CHOICES) or 1
    if (whole_at(body, "best_of", 1) or n) != n:
        raise wrong("best_of", "each completion is recorded: send n alone")
    for key in ("echo", "suffix"):
        if body.get(key):
            raise wrong(key, "it is not supported")
    logprobs = body.get("logprobs")
    if isinstance(logprobs, bool) or logprobs not in (None, 0, 1):
        raise wrong("logprobs", "the record has the sampled tokens alone: send 1")
    raw = _prompt(body.get("prompt"))
    options = body.get("stream_options")
    return ModelRequest(
        model=text_at(body, "model"),
        messages=(Message(role="user", text=raw if isinstance(raw, str) else json.dumps(raw)),),
        raw=raw,
        n=n,
        stream=flag_at(body, "stream"),
        stream_usage=isinstance(options, Mapping) and flag_at(options, "include_usage"),
        logprobs=logprobs is not None,
        token_ids=flag_at(body, "return_token_ids"),
        sampling=read_sampling(body),
        stops=stops_at(body, "stop"),
    )


def _prompt(given: object) -> str | tuple[int, ...]:
    """A text, a list of ids, or a list of one of them."""
    if isinstance(given, list) and len(given) == 1 and not isinstance(given[0], int):
        given = given[0]
    if isinstance(given, str) and given:
        return given
    if isinstance(given, list) and given and all(type(one) is int for one in given):
        if min(given) < 0 or max(given) > _LARGEST_ID:
            raise wrong("prompt", "it holds a number that is no token id")
        return tuple(given)
    raise wrong("prompt", "it must be one text, or one list of token ids, and not empty")


class CompletionsReply:
    """Writes the responses of one call."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._head = {
            "id": "",
            "object": "text_completion",
            "created": int(time.time()),
            "model": request.model,
        }

    def begin(self, response: str) -> list[ServerEvent]:
        self._head["id"] = f"cmpl-{response}"
        return []

    def said(self, said: Said) -> list[ServerEvent]:
        text = said.piece.text if isinstance(said.piece, Words) else ""
        return [("", self._chunk(_choice(said.choice, text)))]

    def end(self, end: CallEnd) -> list[ServerEvent]:
        """The last chunk of each choice, with all its tokens; then the usage, if the client wants
        it."""
        found: list[ServerEvent] = [
            ("", self._chunk({**_choice(one.choice, "", one.end), **self._tokens(one.logprobs)}))
            for one in end.completions
        ]
        if self._request.stream_usage:
            found.append(("", {**self._head, "choices": [], "usage": usage_of(end.usage)}))
        return [*found, ("", "[DONE]")]

    def failed(self, error: ApiError) -> list[ServerEvent]:
        return [("", error_body(error))]

    def whole(self, end: CallEnd) -> dict[str, Any]:
        choices = [
            {**_choice(one.choice, one.message.text, one.end), **self._tokens(one.logprobs)}
            for one in end.completions
        ]
        return {**self._head, "choices": choices, "usage": usage_of(end.usage)}

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        return {**self._head, "choices": [choice]}

    def _tokens(self, logprobs: Sequence[TokenLogprob]) -> dict[str, Any]:
        """What the client wants to know of a completion's tokens."""
        found: dict[str, Any] = {}
        if self._request.token_ids:
            found["token_ids"] = [one.token_id for one in logprobs]
        if self._request.logprobs:
            tokens = [one.token for one in logprobs]
            found["logprobs"] = {
                "tokens": tokens,
                "token_logprobs": [one.logprob for one in logprobs],
                "top_logprobs": None,
                "text_offset": [*accumulate(map(len, tokens), initial=0)][:-1],
            }
        return found


def _choice(index: int, text: str, end: str | None = None) -> dict[str, Any]:
    return {"index": index, "text": text, "finish_reason": end, "logprobs": None}


COMPLETIONS = Dialect(read=read_request, reply=CompletionsReply, error=error_body)
