"""What the memory refuses or cannot do; each message names the thing and the mend."""

from __future__ import annotations


class MemoryFault(Exception):
    """Base of the tree."""


class GroupReused(MemoryFault):
    """A group came with another content than before."""


class NoVersion(MemoryFault):
    """The memory has no such version."""


class Unusable(MemoryFault):
    """The store cannot be read or written, or was begun with another embedder."""


class PortTaken(MemoryFault):
    """The page for Prometheus cannot be served where the recipe wants it."""


class NoChecks(MemoryFault):
    """Tools shall be merged only where they behave alike, and there is no sandbox to ask."""


class BadWork(MemoryFault):
    """A group's work, or a question, that says nothing sensible as a whole: no change is made."""


class ChecksDown(MemoryFault):
    """The sandbox that was asked does not answer: no change is made, ask again."""
