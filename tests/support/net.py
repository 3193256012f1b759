"""Loopback ports."""

from __future__ import annotations

from console.machine.ready import free_ports


def free_port() -> int:
    """A port that nobody held a moment ago, and no outgoing connection gets."""
    return free_ports(1)[0]
