"""A decoding process: greets, then answers one request after the other until nobody asks any more.

Its standard input is a stream socket to the service. Whatever a file leads its decoders to is told
as `Unusable`; want of memory is told, too, and ends the process, since nobody knows what else did
not get its memory.
"""

from __future__ import annotations

import socket
import sys

from pydantic import BaseModel

from toolsvc.tools.image.arguments import Function
from toolsvc.tools.image.decoding.confine import bound, confine
from toolsvc.tools.image.types import Answer, Fault, Limits, Unusable
from toolsvc.tools.image.wire import HEAD, Greeting, Request, length_in, pack, pack_answer

_SMALL = Limits(
    pixels=10_000,
    file_bytes=1 << 20,
    long_side=64,
    padding=0.1,
    sampled_frames=None,
    encoding="auto",
)
"""For what is rehearsed."""


def main() -> None:
    """`python -m toolsvc.tools.image.decoding.worker MEMORY_BYTES`."""
    bound(int(sys.argv[1]))
    channel = socket.socket(fileno=0)
    try:
        from toolsvc.tools.image.decoding import pictures, videos
    except ModuleNotFoundError as error:
        _send(channel, Greeting(missing=error.name or str(error)))
        return
    pictures.rehearse(_SMALL)
    videos.rehearse(_SMALL)
    _send(channel, confine())
    while (received := _receive(channel)) is not None:
        request, descriptor = received
        with open(descriptor, "rb") as file:
            try:
                arguments, limits = request.arguments, request.limits
                if arguments.function is Function.SELECT_FRAMES:
                    found = videos.frames_of(arguments.target_frames or (), file, limits)
                else:
                    found = [pictures.work_on_picture(arguments, file, limits)]
                answer = Answer(found)
            except Unusable as error:
                answer = Answer([], error)
            except MemoryError:
                answer = Answer([], Unusable(Fault.MEMORY, "out of memory"))
        for piece in pack_answer(answer):
            channel.sendall(piece)
        if answer.unusable is not None and answer.unusable.fault is Fault.MEMORY:
            return


def _send(channel: socket.socket, message: BaseModel) -> None:
    channel.sendall(pack(message))


def _receive(channel: socket.socket) -> tuple[Request, int] | None:
    """A request and its file's descriptor; None at the end."""
    head, descriptors, _, _ = socket.recv_fds(channel, HEAD.size, 1)
    if not head:
        return None
    head += _exactly(channel, HEAD.size - len(head))
    return Request.model_validate_json(_exactly(channel, length_in(head))), descriptors[0]


def _exactly(channel: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = channel.recv(count - len(data))
        if not piece:
            raise EOFError("the service has ended in the middle of a request")
        data += piece
    return data


if __name__ == "__main__":
    main()
