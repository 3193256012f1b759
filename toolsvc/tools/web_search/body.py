"""Reads an HTTP answer, but not all of one that never ends."""

from __future__ import annotations

import aiohttp


async def read_body(response: aiohttp.ClientResponse, most: int) -> bytes:
    """At most its first `most` bytes, unpacked."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) >= most:
            break
    return bytes(body[:most])
