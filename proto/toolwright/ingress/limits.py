"""Limits of an outside agent's model calls, for the HTTP half and for the engine."""

from __future__ import annotations

DIGEST_BYTES = 16
MOST_STOPS = 32
MOST_CHOICES = 16
MOST_AT_ONCE = 16
"""Calls of one trajectory in flight."""
MOST_RESULT = 1 << 16
"""Characters of a tool's result that the record keeps."""
