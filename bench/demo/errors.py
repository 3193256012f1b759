"""What can go wrong in a demonstration, beside what `bench.errors` names."""

from __future__ import annotations

from bench.errors import BenchError


class DemoError(BenchError):
    """The demonstration cannot go on; the message names the thing and the mend."""


class RecordBroken(DemoError):
    """A file that a process left does not hold what it should."""
