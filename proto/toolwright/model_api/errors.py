"""Error of an answer that does not follow the API."""

from __future__ import annotations


class WireError(Exception):
    """The server's answer does not follow the API, or is an error event.

    retryable: False if the server blames the request.
    """

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable
