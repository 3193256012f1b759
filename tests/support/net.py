"""Loopback ports. Each worker of a test run has a range of its own: what one has chosen and not yet
bound, no other takes."""

from __future__ import annotations

import os
from collections import deque

from console.machine.ready import free_ports

_FIRST, _EACH, _RANGES = 15_000, 2_200, 8
_given: deque[int] = deque(maxlen=_EACH // 2)


def free_port() -> int:
    """A port that no process held a moment ago, and no outgoing connection gets.

    It is not given again soon: its process may start later, or once more.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _RANGES
    first = _FIRST + worker * _EACH
    while True:
        port = free_ports(1, among=(first, first + _EACH - 1))[0]
        if port not in _given:
            _given.append(port)
            return port
