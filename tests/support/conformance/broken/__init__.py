"""Services with one rule broken each: the proof that the suite sees it.

Every one is the reference service with the smallest change that breaks its rule, and names the
checks that must see it. `python -m tests.support.conformance.broken NAME --listen ADDRESS` serves
one, to look at what `toolsvc check` says of it.
"""

from tests.support.conformance.broken import (
    calls,
    content,
    describing,
    forks,
    limits,
    looking,
    memory,
    sessions,
    streams,
    unlisted,
)
from tests.support.conformance.broken.registry import BROKEN, Broken

__all__ = [
    "BROKEN",
    "Broken",
    "calls",
    "content",
    "describing",
    "forks",
    "limits",
    "looking",
    "memory",
    "sessions",
    "streams",
    "unlisted",
]
