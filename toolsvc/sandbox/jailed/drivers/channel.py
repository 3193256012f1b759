"""A driver's end of the conversation with the host, for drivers whose calls are JSON.

`wire` says what a message looks like; this reads and writes them.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator

from .. import wire

REQUEST_BYTES = 4 * 1024 * 1024
_OUTPUT = 1


def calls(
    channel: socket.socket, wait: Callable[[], None] = lambda: None
) -> Iterator[tuple[wire.CodeCall, int | None]]:
    """Each call, with the descriptor that came with it, which is closed when the next call is asked
    for. `wait` is called before each read, which may block. Ends the process when the host hangs
    up."""
    channel.send(bytes((wire.LAST, wire.READY)))
    incoming = wire.Assembler(REQUEST_BYTES)
    attached: int | None = None
    while True:
        wait()
        packet, descriptors, _, _ = socket.recv_fds(channel, wire.PACKET_BYTES, 1)
        if not packet:
            os._exit(0)
        if descriptors:
            attached = descriptors[0]
        message = incoming.feed(packet)
        if message is None:
            continue
        yield wire.parse_call(message), attached
        if attached is not None:
            os.close(attached)
            attached = None


def answer(
    channel: socket.socket, call: wire.CodeCall, status: int, output: bytes, *, cut: bool = False
) -> None:
    """Writes `output` to the file that the host reads, and reports the end of the call. `cut`:
    `output` is not complete."""
    os.ftruncate(_OUTPUT, 0)
    view = memoryview(output)[: call.keep]
    while view:
        view = view[os.write(_OUTPUT, view) :]
    written = max(len(output), call.keep + 1) if cut else len(output)
    channel.send(bytes((wire.LAST,)) + wire.pack_done(call.number, status, written))
