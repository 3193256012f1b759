"""`toolsvc mcp ADDRESS`: a running tool service as an MCP server for other agents."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from toolsvc.client import Client
from toolsvc.errors import StartError
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.rpc.options import TOKEN_VARIABLE
from toolwright.rpc.tls import TlsError, read_authority


def mcp(
    address: Annotated[str, typer.Argument(help="host:port or unix:/path of the service")],
    http: Annotated[
        str, typer.Option(help="serve streamable HTTP at host:port, path /mcp; default: stdio")
    ] = "",
    insecure: Annotated[
        bool, typer.Option(help="with --http off loopback: without TOOLWRIGHT_TOKEN")
    ] = False,
    tls_ca: Annotated[
        Path | None, typer.Option(help="PEM file of who signed the service's certificate")
    ] = None,
) -> None:
    """Offer the tools of a running service to agents that speak MCP.

    Each MCP session has a session of the service of its own. On standard input and output it serves
    one client, and ends with it. TOOLWRIGHT_TOKEN is the bearer token of the service and of --http.
    """
    try:
        from toolsvc.mcp.serving import serve_http, serve_stdio
    except ImportError as error:
        print(
            f"toolsvc: this needs the package {error.name}: pip install 'toolwright[mcp]'",
            file=sys.stderr,
        )
        raise typer.Exit(1) from None
    token = os.environ.get(TOKEN_VARIABLE, "")
    try:
        authority = None if tls_ca is None else read_authority(tls_ca)
        client = Client(address, token, authority)
        if http:
            asyncio.run(serve_http(client, http, token=token, insecure=insecure))
        else:
            asyncio.run(serve_stdio(client))
    except TransportError as error:
        print(f"toolsvc: no service answers at {address} ({error})", file=sys.stderr)
        raise typer.Exit(1) from None
    except (ServiceError, StartError, TlsError) as error:
        print(f"toolsvc: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
