"""`toolsvc openenv ADDRESS`: a running tool service as an OpenEnv server."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from toolsvc.commands.endings import Authority, Shown, ShownKey, client_of, one_sentence


def openenv(
    address: Annotated[str, typer.Argument(help="host:port or unix:/path of the service")],
    listen: Annotated[str, typer.Option(help="host:port of the OpenEnv server")] = "127.0.0.1:8000",
    insecure: Annotated[bool, typer.Option(help="off loopback: without TOOLWRIGHT_TOKEN")] = False,
    tls_ca: Authority = None,
    tls_cert: Shown = None,
    tls_key: ShownKey = None,
) -> None:
    """Offer the tools of a running service as an OpenEnv environment.

    Each episode is a session of the service. TOOLWRIGHT_TOKEN is the bearer token of the service
    and of this server.
    """
    with one_sentence(address):
        from toolsvc.sources.openenv.serving import serve_openenv

        client = client_of(address, tls_ca, tls_cert, tls_key)
        asyncio.run(serve_openenv(client, listen, insecure=insecure))
