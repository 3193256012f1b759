"""Ports of a service of several processes: known before the workers start, and held for them.

Workers share them (SO_REUSEPORT), and so would any other process of the account that asks to. So
each is first taken alone, which fails where somebody else has it.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from toolsvc.errors import StartError
from toolsvc.serving import bound
from toolwright.rpc.options import is_unix
from toolwright.rpc.server import cannot_listen


@contextlib.contextmanager
def addresses(
    listen: str, workers: int, advertise: str, first_port: int
) -> Iterator[tuple[str, list[str]]]:
    """The service's address, its port known and reserved, and where each worker is to listen.
    ListenError if others hold one of them."""
    if is_unix(listen):
        yield listen, [f"{listen}.{slot}" for slot in range(workers)]
        return
    host = listen.rpartition(":")[0]
    if host in ("0.0.0.0", "[::]", "") and not advertise:
        raise StartError(
            f"--workers with --listen {listen}: clients have to reach each worker; name this "
            "machine as they do, with --advertise HOST"
        )
    own = [f"{host}:{first_port + slot if first_port else 0}" for slot in range(workers)]
    for address in own if first_port else ():
        _bind(address, socket.SO_REUSEADDR).close()
    with _reserved(listen) as public:
        yield public, own


@contextlib.contextmanager
def address_of_health(health: str) -> Iterator[None]:
    """The workers answer there as one, so its port is known and reserved too. StartError or
    ListenError."""
    if not health:
        yield
        return
    if is_unix(health) or health.endswith(":0"):
        raise StartError(f"--health {health}: with --workers name a host and a port, not port 0")
    with _reserved(health):
        yield


@contextlib.contextmanager
def _reserved(address: str) -> Iterator[str]:
    """With its port known. ListenError."""
    with _bind(address, socket.SO_REUSEADDR) as alone:
        known = bound(address, alone.getsockname()[1])
    with _bind(known, socket.SO_REUSEPORT):
        yield known


def _bind(address: str, option: int) -> socket.socket:
    """A socket with that option set, which does not listen. ListenError if it is not to be had."""
    host, _, port = address.rpartition(":")
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    made.setsockopt(socket.SOL_SOCKET, option, 1)
    try:
        made.bind((host.strip("[]"), int(port)))
    except (OSError, OverflowError, ValueError) as error:
        made.close()
        raise cannot_listen(address) from error
    return made
