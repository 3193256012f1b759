"""A parser for `toolsvc.confined` that does what it is told: `request` is Python."""

import ctypes
import os
import resource
import signal
import socket
import time
from typing import BinaryIO

KEPT: list[bytes] = []
"""What one input might leave for the next."""


def rehearse() -> None:
    pass


def work(request: str, file: BinaryIO) -> bytes:
    names = {
        "file": file, "os": os, "kept": KEPT, "signal": signal, "time": time, "ctypes": ctypes,
        "socket": socket, "resource": resource,
    }  # fmt: skip
    exec(request, names)
    answer = names.get("answer", b"")
    assert isinstance(answer, bytes)
    return answer
