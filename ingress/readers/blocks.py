"""Calls between an opening and a closing tag, read while the text arrives. Pure.

Text before a block goes out at once, up to the blanks before a tag that may begin. A block is held
until its closing tag counts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from ingress.readers.types import BLANKS, possible_start, words
from ingress.types import Piece
from toolwright.reading.action_ends import Tags


class BlockReader(ABC):
    """Reader of calls in blocks."""

    def __init__(self, tags: Tags) -> None:
        self._tags = tags
        self._held = ""
        """Text that is not out yet."""
        self._parts: list[str] = []
        """The open block, from its opening tag on."""
        self._tail = ""
        """Its last characters, in which a closing tag may begin."""
        self._seen = False
        """A block has begun."""

    def feed(self, text: str) -> list[Piece]:
        found: list[Piece] = []
        text, self._held = self._held + text, ""
        at = 0
        while at < len(text):
            at = self._inside(text, at, found) if self._parts else self._outside(text, at, found)
        return found

    def end(self) -> list[Piece]:
        rest, self._held = self._held, ""
        if self._parts:
            block, self._parts = "".join(self._parts), []
            return self._whole(block)
        # Blanks after a call belong to its form.
        return [] if self._seen and not rest.strip(BLANKS) else words(rest)

    def _outside(self, text: str, at: int, found: list[Piece]) -> int:
        """Takes text before a block; returns where the block's body begins."""
        opened = text.find(self._tags.open, at)
        if opened < 0:
            rest = text[at:]
            certain = possible_start(rest, self._tags.open)
            found += words(rest[:certain])
            self._held = rest[certain:]
            return len(text)
        found += words(text[at:opened].rstrip(BLANKS))
        self._begin()
        self._seen = True
        self._parts, self._tail = [self._tags.open], ""
        return opened + len(self._tags.open)

    def _inside(self, text: str, at: int, found: list[Piece]) -> int:
        """Takes text of a block; returns where the text after the block begins."""
        close = self._tags.close
        edge = (self._tail + text[at : at + len(close) - 1]).find(close)
        closed = at + edge - len(self._tail) if edge >= 0 else text.find(close, at)
        if closed < 0 and edge < 0:
            self._grow(text[at:])
            self._tail = (self._tail + text[at:])[-(len(close) - 1) :]
            return len(text)
        end = closed + len(close)
        self._grow(text[at:end])
        self._tail = ""
        if self._counts():
            block, self._parts = "".join(self._parts), []
            found += self._whole(block)
        return end

    def _grow(self, text: str) -> None:
        self._parts.append(text)

    def _begin(self) -> None:  # noqa: B027 - most forms have nothing to do
        """A block opens."""

    def _counts(self) -> bool:
        """Whether the closing tag that the block ends with closes it."""
        return True

    @abstractmethod
    def _whole(self, block: str) -> list[Piece]:
        """The pieces of a block, its opening tag included. The closing tag lacks if the completion
        ended inside the block."""
