"""Watches a host and its sessions, during its life and at its end."""

from __future__ import annotations

import structlog

from toolsvc.fleet.link import HostLink, HostLost
from toolsvc.fleet.sessions import SessionTable

log = structlog.get_logger("toolsvc.fleet")


async def watch(host: HostLink, sessions: SessionTable[HostLink]) -> int:
    """Runs until the host is given up or ended; then its sessions are lost, and their number is
    returned. Meanwhile it removes sessions that ended there by themselves."""
    try:
        while True:
            await _let_go(host, sessions)
    except HostLost as error:
        why = str(error)
    lost = sessions.lose(host, why)
    if not host.ended:
        log.error("host lost", host=host.number, at=host.at, sessions=lost, why=why)
    await host.close()
    return lost


async def _let_go(host: HostLink, sessions: SessionTable[HostLink]) -> None:
    """Ends sessions that were placed there some seconds ago and are not there now. A session that
    was requested meanwhile may have come after the host's look: the next look decides."""
    before = [(one, one.asked) for one in sessions.on(host) if not one.opening]
    held = await host.sessions()
    for placed, asked in before:
        if placed.session_id in held or placed.asked != asked:
            continue
        if placed.opened:
            sessions.end(placed, "it was closed, or its lease was not renewed")
        else:
            sessions.drop(placed)
