"""What a worker needs to reach its coordinator, from its standard input."""

from __future__ import annotations

import sys

import grpc.aio
import msgspec

from toolwright.rpc.channel import open_channel

COORDINATOR_NAME = "toolwright-coordinator"
"""Name in the certificate of a coordinator. Its workers know it by the certificate."""


class Credentials(msgspec.Struct, kw_only=True):
    """Empty for a worker that reaches its coordinator by a socket in a private folder."""

    token: str = ""
    certificate: str = ""
    """Certificate of the coordinator, PEM; empty = no TLS."""

    def connect(self, address: str) -> grpc.aio.Channel:
        return open_channel(
            address, self.token, self.certificate.encode() or None, expected=COORDINATOR_NAME
        )


def read_credentials() -> Credentials:
    text = sys.stdin.buffer.read()
    return msgspec.json.decode(text, type=Credentials) if text else Credentials()
