"""The leases of an owner's sessions on one service: renewed, and trusted.

Invariants
- A session that the service has lost is marked as lost.
- Renewal is by owner, so a session whose closing failed would live on. A session that the service
  holds without a trajectory is closed again. Nothing is closed before an earlier life's sessions
  are adopted or given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from engine.core.tools.service import Service
from toolwright import wire
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.tool.v1 import tool_pb2 as pb

log = structlog.get_logger("tools")

RENEW_SECONDS = 10.0


class Leases:
    """The leases on one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._idle: set[str] = set()
        """Endpoints that held no session at the last renewal."""

    async def keep_renewed(self, is_abandoned: Callable[[str], bool]) -> None:
        """Renews three times per lease. Runs until cancelled. Closes sessions that the service
        holds and this engine does not know if `is_abandoned(id)`."""
        while True:
            await asyncio.sleep(self._service.table.lease_s / 3)
            self.close_abandoned(await self.renew(), is_abandoned)

    def close_abandoned(self, held: set[str], is_abandoned: Callable[[str], bool]) -> None:
        """Closes, in the background, the sessions among `held` that this engine does not know."""
        for session_id in held - self._service.known:
            if is_abandoned(session_id):
                self._service.close_if_open(session_id)

    async def renew(self) -> set[str]:
        """Renews the owner's leases at the service's address and at every endpoint with one of its
        sessions. Returns the ids of all held sessions.

        If an endpoint is silent, the service's address is queried about that endpoint's sessions. A
        dead worker answers nothing, and the others know of it.
        """
        service = self._service
        believed: dict[str, list[str]] = {service.address: []}
        for session in service.sessions.values():
            believed.setdefault(session.address, []).append(session.session_id)
        answers = await asyncio.gather(
            *(self._renew_at(address, believed[address]) for address in believed)
        )
        heard = dict(zip(believed, answers, strict=True))
        silent = [address for address, answer in heard.items() if answer is None]
        unheard = [name for address in silent for name in believed[address]]
        if unheard and heard[service.address] is not None:
            answers.append(await self._renew_at(service.address, unheard))
        for answer in answers:
            for session_id in answer.lost if answer else ():
                if session_id in service.sessions:  # some were closed meanwhile
                    service.sessions[session_id].mark_lost()
        await self._forget_idle()
        return {name for answer in answers if answer for name in answer.held}

    async def _renew_at(self, address: str, believed: list[str]) -> pb.RenewLeasesResponse | None:
        """The endpoint's answer; None without one."""
        service = self._service
        request = pb.RenewLeasesRequest(
            owner=service.owner,
            lease=wire.duration(service.table.lease_s),
            session_ids=believed,
        )
        endpoint = service.endpoint_at(address)
        try:
            return await endpoint.unary(endpoint.stub.RenewLeases, request, timeout=RENEW_SECONDS)
        except (ServiceError, TransportError) as error:
            log.warning(
                "lease_renewal_failed", service=service.name, endpoint=address, error=str(error)
            )
            return None

    async def _forget_idle(self) -> None:
        """Forgets endpoints that were idle at two renewals in a row. At the first, a session's
        close may still be in progress."""
        idle = self._service.idle_endpoints
        for address in idle & self._idle:
            await self._service.forget(address)
        self._idle = idle
