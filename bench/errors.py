"""What can end the work of an instrument. Every message is meant for the user."""

from __future__ import annotations


class BenchError(Exception):
    """The instrument cannot go on; the message names the thing and the mend."""


class ProcessFailed(BenchError):
    """A process ended where it should not have; the message holds the tail of its log."""


class NotReady(BenchError):
    """A process lives and does not answer in time; the message holds the tail of its log."""
