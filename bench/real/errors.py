"""What can go wrong before the model is there, beside what `bench.errors` names."""

from __future__ import annotations

from bench.errors import BenchError


class OutOfReach(BenchError):
    """pip could not fetch the wheel; the message holds its last words."""


class NotTheWheel(BenchError):
    """A file has the wheel's name and other bytes, or the wheel lacks what it should hold."""


class NotTheModel(BenchError):
    """The converted model does not say what the original says."""
