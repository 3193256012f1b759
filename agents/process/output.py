"""The bounded output of an agent: its beginning and its end. Pure."""

from __future__ import annotations

HEAD, TAIL = 4096, 8192
"""Bytes that are kept."""


class BoundedOutput:
    """Takes any number of bytes, and keeps the first `head` and the last `tail` of them."""

    def __init__(self, head: int = HEAD, tail: int = TAIL) -> None:
        self._most = head
        self._most_tail = tail
        self._head = bytearray()
        self._tail = bytearray()
        self.size = 0
        """Number of bytes that came."""

    def add(self, data: bytes) -> None:
        self.size += len(data)
        room = self._most - len(self._head)
        self._head += data[:room]
        self._tail += data[max(0, room) :]
        if len(self._tail) > 2 * self._most_tail:
            del self._tail[: -self._most_tail]

    def text(self) -> str:
        """What is kept, as text, with a line for what is left out."""
        tail = bytes(self._tail[-self._most_tail :])
        lost = self.size - len(self._head) - len(tail)
        between = f"\n[{lost} bytes left out]\n".encode() if lost else b""
        return (bytes(self._head) + between + tail).decode("utf-8", "replace")

    def last_line(self) -> str:
        """The last line that is not blank, at most 200 characters of it; "" without one."""
        lines = self.text().rstrip().splitlines()
        return lines[-1].strip()[-200:] if lines else ""
