"""Limits and digests of an outside agent's model calls, for the HTTP half and for the engine."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from toolwright.wire import pack

DIGEST_BYTES = 16
MOST_STOPS = 32
MOST_CHOICES = 16
MOST_AT_ONCE = 16
"""Calls of one trajectory in flight."""
MOST_TEXT = 16 << 20
"""Bytes of its conversations' text that the engine keeps for one trajectory."""
MOST_RESULT = 1 << 16
"""Characters of a tool's result that the record keeps."""


def ids_digest(token_ids: Sequence[int]) -> bytes:
    """Digest of token ids, `DIGEST_BYTES` long."""
    return blake2b(pack(token_ids, "i"), digest_size=DIGEST_BYTES).digest()


MOST_PARTS = 1024
"""Parts of a reward, over all reports."""
