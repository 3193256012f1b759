"""What a client raises for an answer that is not the API's."""

from __future__ import annotations


class WireError(Exception):
    """The server's answer is not what the wire promises, or is an error event.

    retryable: False if the server says that the request is at fault.
    """

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable
