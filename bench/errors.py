"""Errors that end an instrument. Every message is for the user."""

from __future__ import annotations

from console.errors import ConsoleError


class BenchError(ConsoleError):
    """An instrument cannot continue. The message names the thing and the fix."""


class UsageError(BenchError):
    """Options that do not fit. The message names those that do."""

    status = 2
