"""What retrieval can fail at."""

from __future__ import annotations

from toolsvc.errors import StartError


class IndexFault(StartError):
    """A corpus, an encoder or an index that cannot be used; names the file and the fix."""


class NoVector(Exception):
    """A query needs a vector, has none, and there is no encoder to make it."""


class WrongVector(Exception):
    """A query's vector does not fit the index; the message says how."""
