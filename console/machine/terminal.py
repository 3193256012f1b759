"""Standard output that outlives its reader: a run does not end with its terminal.

A terminal that was closed, and a pipe whose reader has gone (`toolwright run ... | head`), take no
more lines. From then on everything goes to /dev/null.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO, cast


def lasting_stdout() -> TextIO:
    """Standard output, whose writes do not fail."""
    return cast(TextIO, _Lasting(sys.stdout))


class _Lasting:
    """As much of a text file as rich asks for."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str) -> int:
        try:
            return self._out.write(text)
        except OSError:
            self._forsake()
            return len(text)

    def flush(self) -> None:
        try:
            self._out.flush()
        except OSError:
            self._forsake()

    def isatty(self) -> bool:
        return self._out.isatty()

    def fileno(self) -> int:
        return self._out.fileno()

    @property
    def encoding(self) -> str:
        return self._out.encoding

    def _forsake(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._out.fileno())
        os.close(nowhere)
