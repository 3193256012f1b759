"""`toolsvc mcp ADDRESS`: a running tool service as an MCP server for other agents."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from toolsvc.commands.endings import Authority, Shown, ShownKey, client_of, one_sentence


def mcp(
    address: Annotated[str, typer.Argument(help="host:port or unix:/path of the service")],
    http: Annotated[
        str, typer.Option(help="serve streamable HTTP at host:port, path /mcp; default: stdio")
    ] = "",
    insecure: Annotated[
        bool, typer.Option(help="with --http off loopback: without TOOLWRIGHT_TOKEN")
    ] = False,
    tls_ca: Authority = None,
    tls_cert: Shown = None,
    tls_key: ShownKey = None,
) -> None:
    """Offer the tools of a running service to agents that speak MCP.

    Each MCP session has a session of the service of its own. On standard input and output it serves
    one client, and ends with it. TOOLWRIGHT_TOKEN is the bearer token of the service and of --http.
    """
    with one_sentence(extra="mcp"):
        from toolsvc.sources.mcp.serving import serve_http, serve_stdio
    with one_sentence(address):
        client = client_of(address, tls_ca, tls_cert, tls_key)
        if http:
            asyncio.run(serve_http(client, http, insecure=insecure))
        else:
            asyncio.run(serve_stdio(client))
