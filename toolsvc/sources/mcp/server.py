"""The address of an MCP server and its transport: a command on its standard streams, or a URL of
streamable HTTP."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from toolsvc.errors import StartError

_SESSION_HEADER = "mcp-session-id"
_CONNECT_SECONDS = 30.0


class McpServer:
    """`transport` makes one connection; nothing is kept between two."""

    def __init__(
        self, where: str, *, environment: Mapping[str, str], folder: Path | None, token: str
    ) -> None:
        """`where`: a command line or a URL. `environment`: variables of a command beside HOME,
        LOGNAME, PATH, SHELL, TERM and USER. `token`: name of the environment variable that holds a
        URL's bearer token, "" = none. Raises StartError if it makes no sense."""
        self._where = where
        self._headers: dict[str, str] | None = None
        self._command: StdioServerParameters | None = None
        if where.startswith(("http://", "https://")):
            if token:
                if not os.environ.get(token):
                    raise StartError(f"mcp:{where}: set {token}, which holds its bearer token")
                self._headers = {"Authorization": f"Bearer {os.environ[token]}"}
            return
        try:
            words = shlex.split(where)
        except ValueError as error:
            raise StartError(f"mcp:{where}: not a command line ({error})") from error
        if not words:
            raise StartError("mcp: name a command or a URL: 'mcp:npx some-server', mcp:http://...")
        if "/" not in words[0] and shutil.which(words[0], path=environment.get("PATH")) is None:
            raise StartError(f"mcp:{where}: there is no program {words[0]!r} on PATH")
        self._command = StdioServerParameters(
            command=words[0], args=words[1:], env=dict(environment), cwd=folder
        )

    def __str__(self) -> str:
        return f"MCP server {self._where!r}"

    @asynccontextmanager
    async def transport(self, gone: Callable[[], None]) -> AsyncIterator[Any]:
        """Streams of messages, from and to the server. Its standard error is the service's. `gone`
        is called where the server says that it does not know the session any more."""
        if self._command is not None:
            # Given, because its default is the standard error at the SDK's import.
            async with stdio_client(self._command, errlog=sys.stderr) as streams:
                yield streams
            return

        async def look(response: httpx2.Response) -> None:
            if response.status_code == 404 and _SESSION_HEADER in response.request.headers:
                gone()

        # Only connecting has a limit: how long an answer takes is for the call to say.
        timeout = httpx2.Timeout(None, connect=_CONNECT_SECONDS)
        hooks = {"response": [look]}
        async with (
            httpx2.AsyncClient(headers=self._headers, timeout=timeout, event_hooks=hooks) as client,
            streamable_http_client(self._where, http_client=client) as streams,
        ):
            yield streams
