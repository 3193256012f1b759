"""What can go wrong in a demonstration, in one tree. Every message is meant for the user."""

from __future__ import annotations


class DemoError(Exception):
    """The demonstration cannot go on; the message names the thing and the mend."""


class ProcessFailed(DemoError):
    """A process ended where it should not have; the message holds the tail of its log."""


class NotReady(DemoError):
    """A process lives and does not answer in time; the message holds the tail of its log."""


class RecordBroken(DemoError):
    """A file that a process left does not hold what it should."""
