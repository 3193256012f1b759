"""The protocol between host, zygote and session over SOCK_SEQPACKET sockets.

Owns the byte layout and nothing else: no socket is opened here. A packet is at most
`PACKET_BYTES` long; a longer message travels as several packets, each but the last marked
`MORE`. The host treats whatever a session sends as hostile: a packet that does not parse raises
`WireError` and costs that session its life, never the host's.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

PACKET_BYTES = 48 * 1024
# A single packet has to fit the default send buffer (208 KiB) of an AF_UNIX socket.

MORE = 1
LAST = 0

CALL = 1
READY = 2
DONE = 3
BROKEN = 4

# How a call ended, as the session tells it.
OK = 0
EXCEPTION = 1
INTERRUPTED = 2
OUT_OF_MEMORY = 3
STATUSES = (OK, EXCEPTION, INTERRUPTED, OUT_OF_MEMORY)

_CALL = struct.Struct("<BII")
_DONE = struct.Struct("<BIBQ")


class WireError(Exception):
    """A packet that no well-behaved peer would send."""


class Done(NamedTuple):
    """The session's answer. `written` counts every byte printed, those dropped included."""

    number: int
    status: int
    written: int


class CodeCall(NamedTuple):
    """One piece of code to run; at most `keep` bytes of output are stored."""

    number: int
    keep: int
    code: bytes


def pack_call(number: int, keep: int, code: bytes) -> bytes:
    return _CALL.pack(CALL, number, keep) + code


def parse_call(message: bytes) -> CodeCall:
    if len(message) < _CALL.size or message[0] != CALL:
        raise WireError("not a call")
    _, number, keep = _CALL.unpack_from(message)
    return CodeCall(number, keep, message[_CALL.size :])


def pack_done(number: int, status: int, written: int) -> bytes:
    return _DONE.pack(DONE, number, status, written)


def parse_done(message: bytes) -> Done:
    if len(message) != _DONE.size or message[0] != DONE:
        raise WireError("not an answer")
    _, number, status, written = _DONE.unpack(message)
    if status not in STATUSES:
        raise WireError(f"unknown status {status}")
    return Done(number, status, written)


def split(message: bytes) -> list[bytes]:
    """The packets that carry `message`; at least one, even for an empty message."""
    pieces = [message[i : i + PACKET_BYTES - 1] for i in range(0, len(message), PACKET_BYTES - 1)]
    pieces = pieces or [b""]
    return [bytes((MORE,)) + piece for piece in pieces[:-1]] + [bytes((LAST,)) + pieces[-1]]


class Assembler:
    """Joins packets into messages; at most `limit` bytes are held."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._parts: list[bytes] = []
        self._held = 0

    def feed(self, packet: bytes) -> bytes | None:
        """The whole message once its last packet is here, else None. Raises WireError if it is not
        one."""
        if not packet or packet[0] not in (MORE, LAST):
            raise WireError("packet without a marker")
        body = packet[1:]
        if packet[0] == MORE and not body:  # endless ones would cost memory and count nothing
            raise WireError("an empty piece")
        if self._held + len(body) > self.limit:
            raise WireError(f"message above {self.limit} bytes")
        if packet[0] == LAST and not self._parts:
            return body
        self._parts.append(body)
        self._held += len(body)
        if packet[0] == MORE:
            return None
        message = b"".join(self._parts)
        self._parts.clear()
        self._held = 0
        return message
