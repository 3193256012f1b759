"""Starts each command. Ctrl-C ends it without a traceback, also during imports.

A proxy of the environment does not apply to loopback, for the command and for programs that it
starts. If a user's file hides the command's package, the command ends with one sentence.

This module imports little, and the standard library alone. From `main` on the command handles
signals itself.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import MutableMapping
from functools import partial
from importlib import import_module
from typing import NoReturn

from toolwright.process.own_packages import hidden, in_the_way

LOOPBACK = ("localhost", "127.0.0.1", "::1")
INTERRUPTED = 128 + signal.SIGINT


def _enter(program: str, module: str, *, starts: tuple[str, ...] = ()) -> None:
    """starts: packages of the programs that this one starts."""

    def leave(_number: int, _frame: object) -> NoReturn:
        os.write(sys.stderr.fileno(), f"{program}: interrupted before it began\n".encode())
        os._exit(INTERRUPTED)  # there is nothing to tidy, and imports swallow exceptions

    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:  # and not ignored, as behind a shell's &
        signal.signal(signal.SIGINT, leave)
    spare_loopback(os.environ)
    for package in (module.partition(".")[0], *starts):
        if found := in_the_way(package):
            sys.exit(f"{program}: {hidden(package, found)}")
    main = import_module(module).main
    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()


def spare_loopback(environment: MutableMapping[str, str]) -> None:
    """Adds loopback to `no_proxy`, in both spellings, if a proxy is set."""
    proxies = (key.lower() for key, value in environment.items() if value)
    if not any(key.endswith("_proxy") and key != "no_proxy" for key in proxies):
        return
    given = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    words = [word.strip() for word in given.split(",") if word.strip()]
    if "*" not in words:
        words += [host for host in LOOPBACK if host not in words]
    environment["no_proxy"] = environment["NO_PROXY"] = ",".join(words)


agents = partial(_enter, "agents", "agents.cli")
engine = partial(_enter, "engine", "engine.cli")
ingress = partial(_enter, "ingress", "ingress.cli")
learner = partial(_enter, "learner", "learner.cli")
toolsvc = partial(_enter, "toolsvc", "toolsvc.cli")
memory = partial(_enter, "memory", "memory.cli")
tasks = partial(_enter, "tasks", "tasks.cli")
bench = partial(_enter, "bench", "bench.cli", starts=("engine", "toolsvc"))
toolwright = partial(
    _enter, "toolwright", "console.cli", starts=("engine", "learner", "toolsvc", "memory")
)
