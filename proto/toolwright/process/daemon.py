"""Starts a thread that must not keep its process from ending."""

from __future__ import annotations

import threading
from collections.abc import Callable


def start_daemon(work: Callable[[], object], name: str) -> threading.Thread:
    """Runs `work` in a daemon thread; returns the thread, started. Raises RuntimeError if the
    system grants no thread."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread
