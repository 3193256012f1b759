"""`toolsvc serve openenv:URL`: the environment of a running OpenEnv server, as it describes itself
when the service starts."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import aiohttp
from pydantic import BaseModel, Field

from toolsvc.errors import StartError
from toolsvc.plugin.tool import STRICT, Tool
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.elsewhere import Source
from toolsvc.sources.openenv.openenv_tool import OpenEnvTool

MOST_BYTES = 1 << 20
"""Largest description, in bytes."""
_OURS = ("metadata",)
"""Fields of OpenEnv's own in every action."""


class OpenEnvOptions(BaseModel):
    """Options of OpenEnv servers."""

    model_config = STRICT

    name: str = Field(default="act", pattern=r"^[A-Za-z_][\w-]*$", description="of the tool")
    token: str = Field(
        default="", description="environment variable that holds the server's bearer token"
    )
    run_limit: float = Field(default=30.0, gt=0, description="seconds of a step")
    start_limit: float = Field(default=60.0, gt=0, description="seconds for its description")


class OpenEnvSource(Source):
    where = "URL"
    description = "The environment of a running OpenEnv server."
    Config = OpenEnvOptions

    @classmethod
    async def tools(cls, where: str, options: OpenEnvOptions, sandbox: SandboxConfig) -> list[Tool]:
        url = where.rstrip("/")
        if not url.startswith(("http://", "https://")):
            raise StartError(f"openenv:{where}: write the server's URL: openenv:http://host:8000")
        headers = _headers(where, options.token)
        try:
            async with (
                asyncio.timeout(options.start_limit),
                aiohttp.ClientSession(headers=headers) as http,
            ):
                metadata = await _read(http, f"{url}/metadata")
                schema = (await _read(http, f"{url}/schema")).get("action")
        except TimeoutError as error:
            raise StartError(
                f"{url} did not describe itself within {options.start_limit:g} s: raise "
                "openenv.start_limit, or see whether it answers GET /schema"
            ) from error
        except aiohttp.ClientError as error:
            raise StartError(f"{url} cannot be reached: {error}") from error
        if not isinstance(schema, dict):
            raise StartError(f"{url}/schema has no schema of actions: is it an OpenEnv server?")
        return [
            OpenEnvTool(
                options.name,
                url=url,
                headers=headers,
                environment=str(metadata.get("name") or "an environment"),
                description=str(metadata.get("description") or ""),
                schema=_plain(schema),
                run_limit=options.run_limit,
            )
        ]


def _headers(where: str, token: str) -> dict[str, str]:
    if not token:
        return {}
    if not os.environ.get(token):
        raise StartError(f"openenv:{where}: set {token}, which holds its bearer token")
    return {"Authorization": f"Bearer {os.environ[token]}"}


async def _read(http: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    """An object of JSON. Raises StartError for anything else."""
    async with http.get(url) as answer:
        body = await answer.content.read(MOST_BYTES + 1)
        while len(body) <= MOST_BYTES and (more := await answer.content.read(MOST_BYTES)):
            body += more
    if answer.status != 200 or len(body) > MOST_BYTES:
        what = f"status {answer.status}" if answer.status != 200 else f"over {MOST_BYTES} bytes"
        raise StartError(f"{url} answers with {what}: is it an OpenEnv server?")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise StartError(f"{url} does not answer in JSON: {error}") from error
    if not isinstance(found, dict):
        raise StartError(f"{url} answers with {type(found).__name__}, not an object")
    return found


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as a policy reads it: without titles, and fields of OpenEnv's own."""
    fields = {
        name: {key: value for key, value in field.items() if key != "title"}
        if isinstance(field, dict)
        else field
        for name, field in (schema.get("properties") or {}).items()
        if name not in _OURS
    }
    rest = {key: value for key, value in schema.items() if key not in ("title", "properties")}
    return {"type": "object", **rest, "properties": fields}
