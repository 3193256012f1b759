"""Replies of the scripted sampler as its scheduler holds them, without HTTP."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any

from bench.scripted.scheduling.generation import Generation
from bench.scripted.types import GenerateRequest, Token

ENDLESS = repeat(Token(5, -1.0))


def reply(
    rid: str = "r",
    *,
    source: Iterable[Token] = ENDLESS,
    delays: Iterable[float] = repeat(0.0),
    cached_tokens: int = 0,
    **changes: Any,
) -> Generation:
    """A reply that has not begun. source: its tokens. delays: seconds before each chunk. changes:
    fields of the request."""
    fields: dict[str, Any] = {
        "rid": rid,
        "input_ids": (1,),
        "stream": True,
        "return_logprob": True,
        "return_prompt_token_ids": False,
        "max_new_tokens": 10_000,
        "stop_token_ids": frozenset(),
        "ignore_eos": False,
        "stream_interval": 1,
        "conversation": rid,
        "params": {},
        **changes,
    }
    return Generation(
        request=GenerateRequest(**fields),
        source=iter(source),
        delays=iter(delays),
        eos=frozenset(),
        started=0.0,
        cached_tokens=cached_tokens,
    )
