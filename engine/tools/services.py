"""All tool services of a recipe: sessions open on every one of them, are kept, and are closed.

Invariants
- Every session that was opened is closed, also after failure and cancellation, and its calls
  still in flight are cancelled before; what a close cannot reach, the lease's end reaps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from engine.errors import AttemptFailed, StartupError
from engine.images.media import Media
from engine.tools.environment import Session
from engine.tools.process import ToolProcess
from engine.tools.service import Part, Service
from engine.types import ToolSpec
from toolwright.recipe import Tool as ToolTable
from toolwright.types import Task


class ToolServices:
    """All services of a recipe, the leases of this engine's sessions, and their closing."""

    def __init__(
        self,
        tables: Mapping[str, ToolTable],
        owner: str,
        processes: Mapping[str, ToolProcess] | None = None,
    ) -> None:
        """`processes`: by table, those that the engine starts itself. StartupError for a `tls_ca`
        that cannot be used."""
        self._owner = owner
        own = processes or {}
        self._services = {
            name: Service(name, table, own.get(name)) for name, table in tables.items()
        }
        self._closing: set[asyncio.Task[None]] = set()
        self._live: dict[str, Session] = {}

    async def open(self) -> dict[str, list[ToolSpec]]:
        """Starts what is the engine's to start, all at once, connects, closes what an earlier life
        of this owner left, and lists the tools that the recipe takes of each service; single
        sessions may have more.

        StartupError names the service that does not start or answer or lacks a tool, and the two
        that have tools of one name.
        """
        with _first_of_group(StartupError):
            async with asyncio.TaskGroup() as group:
                for service in self._services.values():
                    group.create_task(service.start())
        found: dict[str, list[ToolSpec]] = {}
        for name, service in self._services.items():
            found[name] = await service.describe()
            for session_id in (await service.renew(self._owner, {})).held:
                await service.close_session(session_id, service.address)
        _refuse_namesakes(tool for tools in found.values() for tool in tools)
        return found

    async def close(self) -> None:
        await asyncio.gather(*self._closing, return_exceptions=True)
        await asyncio.gather(*(service.close() for service in self._services.values()))

    async def open_session(
        self, session_id: str, task: Task, media: Sequence[Media] = ()
    ) -> Session:
        """A session on every service; `media` are those of the task. AttemptFailed when one
        cannot open it.

        After failure and cancellation nothing of it stays open. The id on the wire is led by the
        owner's: several engines may share a service.
        """
        session_id = f"{self._owner[:8]}/{session_id}"
        session = self._live[session_id] = Session(session_id, self._close_later)
        opening: list[asyncio.Task[Part]] = []
        whole = False
        try:
            with _first_of_group(AttemptFailed):
                async with asyncio.TaskGroup() as group:
                    for service in self._services.values():
                        work = service.open_session(session_id, self._owner, task, media)
                        opening.append(group.create_task(work))
            whole = True
        finally:
            for one in opening:
                if not one.cancelled() and not one.exception():
                    session.parts.append(one.result())
            if not whole:  # cancelled, too, at the moment when the last one was open
                session.close()
        return session

    def _close_later(self, session: Session) -> None:
        """Closes the session's parts without keeping the trajectory waiting."""
        self._live.pop(session.id, None)
        endpoints = {part.name: part.endpoint for part in session.parts}

        async def close() -> None:
            await asyncio.gather(*(pending.cancel() for pending in session.pending))
            for name, service in self._services.items():
                await service.close_session(session.id, endpoints.get(name, service.address))

        task = asyncio.get_running_loop().create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def keep_processes(self) -> None:
        """Starts what the engine has started again whenever it ends. StartupError, in a group,
        where it does not start."""
        async with asyncio.TaskGroup() as group:
            for service in self._services.values():
                group.create_task(service.keep())

    async def keep_leases(self) -> None:
        """Renews each service's leases three times a lease; runs until cancelled.

        Sessions that a service has lost are told so. Renewal is by owner, so a session whose
        closing failed would live on: what a service holds and no trajectory does is closed again.
        """
        async with asyncio.TaskGroup() as group:
            for service in self._services.values():
                group.create_task(self._keep_lease(service))

    async def _keep_lease(self, service: Service) -> None:
        while True:
            await asyncio.sleep(service.table.lease_s / 3)
            placed = {
                session.id: part.endpoint
                for session in self._live.values()
                for part in session.parts
                if part.service is service
            }
            leases = await service.renew(self._owner, placed)
            for session_id in leases.lost & self._live.keys():  # some were closed meanwhile
                self._live[session_id].lose(service.name)
            for session_id in leases.held - self._live.keys():
                await service.close_everywhere(session_id)


@contextmanager
def _first_of_group(kind: type[Exception]) -> Iterator[None]:
    """Of a group in which all are of the `kind` the first is raised; any other group as it is."""
    try:
        yield
    except BaseExceptionGroup as failures:
        failed, others = failures.split(kind)
        if failed is None or others is not None:
            raise
        raise failed.exceptions[0] from None


def _refuse_namesakes(tools: Iterable[ToolSpec]) -> None:
    """A call names its tool, so two services of one recipe cannot both have it. StartupError."""
    seen: dict[str, ToolSpec] = {}
    for tool in tools:
        first = seen.setdefault(tool.name, tool)
        if first.service != tool.service:
            raise StartupError(
                f"tools.{first.service} and tools.{tool.service} both have a tool "
                f"{tool.name!r}: leave it out of one of them with tools.{tool.service}.names"
            )
