"""Errors of the memory; each message names the thing and the fix."""

from __future__ import annotations


class MemoryFault(Exception):
    """Base of the tree."""


class GroupReused(MemoryFault):
    """A group came again with different content."""


class NoVersion(MemoryFault):
    """The memory has no such version."""


class Unusable(MemoryFault):
    """The store cannot be read or written, or was begun with another embedder."""


class PortTaken(MemoryFault):
    """The page for Prometheus cannot be served where the recipe wants it."""


class NoChecks(MemoryFault):
    """A merge needs a check that tools behave alike, and no sandbox is configured."""


class BadWork(MemoryFault):
    """A group's work, or a question, is invalid as a whole: no change is made."""


class ChecksDown(MemoryFault):
    """The sandbox does not answer: no change is made, retry."""
