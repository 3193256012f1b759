"""Ids of responses. An id names its call in the trajectory, so that a reward may name it. Pure.

A replayed call has its id again. Calls of two trajectories have two ids.
"""

from __future__ import annotations

import re
from hashlib import blake2b

_FORM = re.compile(r"(?:chatcmpl-|cmpl-|msg_|resp_)[0-9a-f]{24}-(\d{1,9})")


def response_id(key: str, request: bytes, node: int) -> str:
    """The id without the prefix of its API. request: digest of the request. node: number of the
    call's first completion."""
    digest = blake2b(request, key=blake2b(key.encode()).digest(), digest_size=12)
    return f"{digest.hexdigest()}-{node}"


def is_response(response: str, key: str, request: bytes, node: int) -> bool:
    """Whether the id with its prefix is the one that the call got."""
    return response.partition("_")[2] == response_id(key, request, node)


def node_of(response: str) -> int | None:
    """Number of the first completion of a response; None for a text that is no response's id."""
    found = _FORM.fullmatch(response)
    return int(found[1]) if found else None
