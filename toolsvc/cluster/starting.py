"""From an actor to a host that answers, and which of those there are."""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
from dataclasses import replace

from toolsvc.cluster.host_actor import Assignment, Failed
from toolsvc.cluster.link import HostLink
from toolsvc.cluster.ray_cluster import Actor, ActorGone, ActorSilent
from toolsvc.cluster.resources import Resources
from toolsvc.errors import StartError
from toolsvc.serving import ServiceConfig, service_name


class Starter:
    """Of all hosts of one service; they share a token that nobody else has."""

    def __init__(self, config: ServiceConfig) -> None:
        """`config`: of a shared host."""
        self._shared = config
        self._alone = replace(
            config,
            max_sessions=1,
            permits=None,
            sandbox=replace(config.sandbox, ready=1, shards=1),
        )
        self._token = secrets.token_hex(32)
        self._numbers = itertools.count()
        self._started: list[HostLink] = []

    @property
    def hosts(self) -> list[HostLink]:
        """Those that were started and are not given up."""
        self._started = [host for host in self._started if not host.lost]
        return list(self._started)

    async def start(
        self, needs: Resources, tools: tuple[str, ...], *, alone: bool = False
    ) -> HostLink:
        """As soon as a node has room, however long that takes. StartError with the sentence that
        the host gave, or that it died. `alone`: for one session."""
        actor = Actor(needs)
        assignment = Assignment(
            config=self._alone if alone else self._shared,
            tools=tools,
            folder=os.getcwd(),
            token=self._token,
            version=service_name(),
        )
        try:
            answer = await actor.start(assignment)
        except (ActorGone, ActorSilent) as error:
            actor.kill()
            raise StartError(f"a host died at its start: {error}") from error
        except asyncio.CancelledError:
            actor.kill()
            raise
        if isinstance(answer, Failed):
            actor.kill()
            raise StartError(answer.sentence)
        host = HostLink(next(self._numbers), actor, answer, self._token)
        self._started = [*self.hosts, host]
        return host
