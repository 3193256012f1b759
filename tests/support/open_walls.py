"""A parser for `toolsvc.confined` that takes a wall down while it is rehearsed: the self-test must
see it."""

from typing import BinaryIO

from toolsvc.sandbox.jailed.walls import kernel


def rehearse() -> None:
    kernel.SeccompProgram.install = lambda self: None  # type: ignore[method-assign]


def work(request: str, file: BinaryIO) -> bytes:
    return b""
