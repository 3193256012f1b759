"""What becomes of a host and of the sessions on it, as long as it lives and at its end."""

from __future__ import annotations

import structlog

from toolsvc.fleet.link import HostLink, HostLost
from toolsvc.fleet.sessions import Sessions

log = structlog.get_logger("toolsvc.fleet")


async def watch(host: HostLink, sessions: Sessions[HostLink]) -> int:
    """Until the host is given up, or ended; then its sessions are lost, and it returns how many
    those were. Before, sessions that ended there by themselves are let go."""
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


async def _let_go(host: HostLink, sessions: Sessions[HostLink]) -> None:
    """Ends sessions that were placed there some seconds ago and are not there now. A session that
    was asked for meanwhile may have come after the host looked: the next look decides."""
    before = [(one, one.asked) for one in sessions.on(host) if not one.opening]
    held = await host.sessions()
    for placed, asked in before:
        if placed.session_id in held or placed.asked != asked:
            continue
        if placed.opened:
            sessions.end(placed, "it was closed, or its lease was not renewed")
        else:
            sessions.drop(placed)
