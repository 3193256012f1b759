"""The service whose hosts are processes on this machine."""

from __future__ import annotations

import itertools
import os
import secrets

from toolsvc.errors import StartError
from toolsvc.fleet.hosts import Wanted
from toolsvc.fleet.local.child import Child
from toolsvc.fleet.local.messages import Assignment
from toolsvc.fleet.resources import counted
from toolsvc.fleet.serving import HostKind, no_verltool, of_one_host, serve_fleet
from toolsvc.service_config import ServiceConfig
from toolsvc.serving import stop_event
from toolwright.rpc.options import is_unix


async def serve_locally(config: ServiceConfig) -> None:
    """Serves until SIGTERM. Raises StartError or ListenError before that; StartError also where,
    later, a worker cannot start and no other lives."""
    no_verltool(config)
    workers, advertise = config.workers, config.advertise
    own = _addresses(config.listen, workers, advertise, config.worker_port)
    stop = stop_event(until_eof=config.until_eof)
    of_each = of_one_host(config, workers)
    token = secrets.token_hex(32)
    links = f"unix-abstract:toolsvc-{os.getpid()}-{secrets.token_hex(8)}"
    generations = itertools.count()

    def make(wanted: Wanted) -> Child:
        if wanted.slot is None:
            raise RuntimeError("a worker for one session alone")
        return Child(
            Assignment(
                config=of_each,
                slot=wanted.slot,
                listen=own[wanted.slot],
                advertise=advertise,
                link=f"{links}-{next(generations)}",
                front=links,
                token=token,
            ),
            wanted.closed,
        )

    kind = HostKind(
        hosts=workers, named=counted(workers, "worker"), make=make, token=token, link=links
    )
    await serve_fleet(config, kind, stop)


def _addresses(listen: str, workers: int, advertise: str, first_port: int) -> list[str]:
    """Address at which each worker listens."""
    if is_unix(listen):
        return [f"{listen}.{slot}" for slot in range(workers)]
    host = listen.rpartition(":")[0]
    if host in ("0.0.0.0", "[::]", "") and not advertise:
        raise StartError(
            f"--workers with --listen {listen}: clients have to reach each worker; name this "
            "machine as they do, with --advertise HOST"
        )
    return [f"{host}:{first_port + slot if first_port else 0}" for slot in range(workers)]
