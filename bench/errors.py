"""Errors that end an instrument. Every message is for the user."""

from __future__ import annotations


class BenchError(Exception):
    """An instrument cannot continue. The message names the thing and the fix."""

    status = 1
    """Exit code of the command."""


class UsageError(BenchError):
    """Options that do not fit. The message names those that do."""

    status = 2
