"""The leases of an engine's sessions on all services, over the engine's lives.

Invariants
- A session that its service has lost is marked as lost.
- Renewal is by owner, so a session whose closing failed would live on. A session that the service
  holds without a trajectory is closed again. Nothing is closed before an earlier life's sessions
  are adopted or given up.
- Only one process renews an owner's leases. It hears of its workers' sessions late: at most when
  it gives a silent worker up. So a living worker's session is closed only after `UNKNOWN_S`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Iterable

import structlog

from engine.core.time_limit import loop_now
from engine.core.tools.service import Service
from toolwright import wire
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.tool.v1 import tool_pb2 as pb

log = structlog.get_logger("tools")

RENEW_SECONDS = 10.0
UNKNOWN_S = 15.0
"""Time in which a living worker reports a session; a worker that is silent for longer is lost."""


class Leases:
    """The leases of one life of the engine."""

    def __init__(self, services: Collection[Service], owner: str, life: str = "") -> None:
        """owner: the same in every life of the engine. life: ends the ids of sessions; "" = a
        random word."""
        self._services = services
        self._owner = owner
        self._life = life or secrets.token_hex(3)
        self.worker_lives: set[str] = set()
        """Lives of the workers that live, whose sessions this process renews."""
        self._unknown: dict[str, dict[str, float]] = {}
        """By service, the sessions that renewals found and nothing knew, and since when."""
        self._kept: frozenset[str] | None = None
        """Sessions of an earlier life that stay open; None until `close_abandoned` names them."""
        self._adopted: set[str] = set()
        """Sessions of an earlier life that belong to this life now."""

    def wire_id(self, session_id: str) -> str:
        """Session id on the wire. It begins with the owner's, since engines may share a service. It
        differs in each life of the engine, since a service remembers closed sessions."""
        return f"{self._owner[:8]}/{session_id}@{self._life}"

    def adopt(self, ids: Iterable[str]) -> None:
        """Records sessions of an earlier life as sessions of this one."""
        self._adopted.update(ids)

    async def close_abandoned(self, going_on: Collection[str]) -> None:
        """Closes this owner's sessions from an earlier life, except the ids in `going_on`."""
        self._kept = frozenset(going_on)
        await asyncio.gather(*(self._renew(service) for service in self._services))

    async def keep_renewed(self) -> None:
        """Renews three times per lease. Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            for service in self._services:
                group.create_task(self._keep_renewed(service))

    async def _keep_renewed(self, service: Service) -> None:
        while True:
            await asyncio.sleep(service.table.lease_s / 3)
            await self._renew(service)

    async def _renew(self, service: Service) -> None:
        """Renews the owner's leases at the service's address and at every endpoint with one of its
        sessions. Closes, in the background, abandoned sessions that the service holds.

        If an endpoint is silent, the service's address is queried about that endpoint's sessions. A
        dead worker answers nothing, and the others know of it.
        """
        believed: dict[str, list[str]] = {service.address: []}
        for session in service.sessions.values():
            believed.setdefault(session.address, []).append(session.session_id)
        answers = await asyncio.gather(
            *(self._renew_at(service, address, ids) for address, ids in believed.items())
        )
        heard = dict(zip(believed, answers, strict=True))
        silent = [address for address, answer in heard.items() if answer is None]
        unheard = [name for address in silent for name in believed[address]]
        if unheard and heard[service.address] is not None:
            answers.append(await self._renew_at(service, service.address, unheard))
        heard_from = [answer for answer in answers if answer is not None]
        for session_id in (name for answer in heard_from for name in answer.lost):
            if session_id in service.sessions:  # some were closed meanwhile
                service.sessions[session_id].mark_lost()
        await service.link.forget_idle({one.address for one in service.sessions.values()})
        held = {name for answer in heard_from for name in answer.held}
        before, now = self._unknown.get(service.name, {}), loop_now()
        unknown = {name: before.get(name, now) for name in held - service.known}
        self._unknown[service.name] = unknown
        for session_id, since in unknown.items():
            of_worker = session_id.rpartition("@")[2] in self.worker_lives
            if of_worker and now - since < UNKNOWN_S:
                continue
            if self._is_abandoned(session_id):
                service.close_if_open(session_id)

    async def _renew_at(
        self, service: Service, address: str, believed: list[str]
    ) -> pb.RenewLeasesResponse | None:
        """The endpoint's answer; None without one."""
        request = pb.RenewLeasesRequest(
            owner=self._owner,
            lease=wire.duration(service.table.lease_s),
            session_ids=believed,
        )
        endpoint = service.link.endpoint_at(address)
        try:
            return await endpoint.unary(endpoint.stub.RenewLeases, request, timeout=RENEW_SECONDS)
        except (ServiceError, TransportError) as error:
            log.warning(
                "lease_renewal_failed", service=service.name, endpoint=address, error=str(error)
            )
            return None

    def _is_abandoned(self, wire_id: str) -> bool:
        if self._kept is None:
            return False
        names = {wire_id, wire_id.partition("/")[2].rpartition("@")[0]}
        return bool(names & self._adopted) or not names & self._kept
