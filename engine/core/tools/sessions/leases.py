"""The leases of an owner's sessions on one service: renewed, and believed.

Invariants
- A session that the service has lost is told so.
- Renewal is by owner, so a session whose closing failed would live on: what a service holds and no
  trajectory does is closed again. Before an earlier life's sessions are found again or given up,
  nothing is closed.
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
        """Endpoints that held nothing at the last renewal."""

    async def keep_renewed(self, is_stranger: Callable[[str], bool]) -> None:
        """Renews three times a lease; runs until cancelled. Sessions that the service holds and
        this engine does not know are closed where `is_stranger(id)`."""
        while True:
            await asyncio.sleep(self._service.table.lease_s / 3)
            self.close_strangers(await self.renew(), is_stranger)

    def close_strangers(self, held: set[str], is_stranger: Callable[[str], bool]) -> None:
        """Closes, soon, those of the sessions `held` by the service that nobody here knows."""
        for session_id in held - self._service.known:
            if is_stranger(session_id):
                self._service.close_unknown(session_id)

    async def renew(self) -> set[str]:
        """Renews the owner's leases at the service's address and at every endpoint that holds one
        of its sessions; returns the ids of all that are held.

        Where an endpoint is silent, the service's address is asked about that endpoint's sessions:
        a worker that died says nothing, and the others know of it.
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
                    service.sessions[session_id].lose()
        await self._forget_idle()
        return {name for answer in answers if answer for name in answer.held}

    async def _renew_at(self, address: str, believed: list[str]) -> pb.RenewLeasesResponse | None:
        """The endpoint's answer; None where it gives none."""
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
        """Forgets endpoints that were idle at two renewals in a row: at the first, a session's
        close may still be under way."""
        idle = self._service.idle_endpoints
        for address in idle & self._idle:
            await self._service.forget(address)
        self._idle = idle
