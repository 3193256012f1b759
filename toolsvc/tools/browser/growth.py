"""Whose pages make the processes grow that all pages of a browser share.

Chromium keeps much of what a page makes outside of the page's own process: blobs, databases and
caches are in its main one. The kernel does not say for whom. But what gets there, a page's process
has written, into memory that it had to touch, or in many small messages, which take time. So what
the shared processes grow by is charged to the pages' processes by their effort meanwhile; when they
shrink, all charges shrink with them.

A pure account: it is told what is seen at each look and knows no process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_PAGE_BYTES = 4096
_BYTES_A_SECOND = 16 * 1024 * 1024
"""What a second of computing counts for beside memory that was touched: small messages carry no
more, and a page that only computes shall not be charged for one that writes."""


class Effort(NamedTuple):
    """Of a page's process since it began. `faults`: pages of memory that it touched first."""

    seconds: float
    faults: int

    def since(self, before: Effort) -> float:
        touched = (self.faults - before.faults) * _PAGE_BYTES
        return max(0.0, touched + (self.seconds - before.seconds) * _BYTES_A_SECOND)


_NOTHING = Effort(0.0, 0)


class Growth:
    """Of one browser. Bytes."""

    def __init__(self) -> None:
        self._shared = 0
        self._efforts: Mapping[int, Effort] = {}
        self._charges: dict[int, float] = {}

    def look(self, shared: int, efforts: Mapping[int, Effort]) -> None:
        """`shared`: what the shared processes hold. `efforts`: of all processes of pages by number.
        At the first look nobody is charged."""
        grown = shared - self._shared if self._shared else 0
        done = {pid: now.since(self._efforts.get(pid, _NOTHING)) for pid, now in efforts.items()}
        together = sum(done.values())
        kept = min(1.0, shared / self._shared) if self._shared else 1.0
        self._charges = {
            pid: self._charges.get(pid, 0.0) * kept
            + (grown * effort / together if grown > 0 and together > 0 else 0.0)
            for pid, effort in done.items()
        }
        self._shared, self._efforts = shared, efforts

    def heaviest(self) -> tuple[int, int] | None:
        """The process that is charged most, and with how much. None if nobody is charged."""
        if not self._charges:
            return None
        pid = max(self._charges, key=lambda one: self._charges[one])
        charge = int(self._charges[pid])
        return (pid, charge) if charge > 0 else None

    def forgive(self, pid: int) -> None:
        """It was ended for what it is charged with."""
        self._charges.pop(pid, None)
