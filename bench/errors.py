"""What can end the work of an instrument. Every message is meant for the user."""

from __future__ import annotations

from console.errors import ConsoleError


class BenchError(ConsoleError):
    """The instrument cannot go on; the message names the thing and the mend."""
