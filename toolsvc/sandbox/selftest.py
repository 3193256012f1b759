"""Tries, from inside a session, what a session must not be able to do.

The result decides whether a level of isolation may be used. A tool may accept an option that the
kernel does not enforce: in a container, firejail silently runs programs bare. `judge` is pure;
`examine` sets up real bait on the host (files, listeners, a second session) and runs
`jailed/probe.py` as foreign code.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toolsvc.sandbox.bundle import probe_source
from toolsvc.sandbox.config import Isolation, SandboxConfig
from toolsvc.sandbox.errors import SandboxError
from toolsvc.sandbox.jailed.walls import kernel, syscalls
from toolsvc.sandbox.jailed.walls.confine import ENVIRONMENT
from toolsvc.sandbox.pool import SandboxPool
from toolsvc.sandbox.session import Ending, SandboxSession
from toolwright.process.sockets import folder_for_sockets

_LIMIT_SECONDS = 20.0
_KEEP_BYTES = 256 * 1024
_CAPGET = {syscalls.X86_64: 125, syscalls.AARCH64: 90}
_ENVIRONMENT = {*ENVIRONMENT, "HOME", "TMPDIR", "LC_CTYPE", "PYTHONPATH"}
_DESCRIPTORS = {0, 1, 2, 3}
_UNTOUCHED = "(41, 's', ['secret'])"
_BAIT = "toolsvc-selftest-"
_BAIT_SECONDS = 600.0


def judge(report: Mapping[str, Any]) -> list[str]:
    """What is wrong with the isolation, one phrase each; empty = it holds."""
    faults = [f"could {_verb(what)} ({how})" for what, how in report["done"].items()]
    if report["no_new_privs"] != 1:
        faults.append("can gain privileges by exec (NoNewPrivs is not set)")
    if report["seccomp"] != 2:
        faults.append("runs without a seccomp filter")
    if report["uid_is_root"]:
        faults.append("runs as root")
    if report["core"] != 0:
        faults.append("may dump core")
    foreign = sorted(set(report["environment"]) - _ENVIRONMENT)
    faults += [f"sees the environment variable {name}" for name in foreign]
    open_files = sorted(set(report["descriptors"]) - _DESCRIPTORS)
    faults += [f"holds the open file {descriptor}" for descriptor in open_files]
    faults += [f"finds {name} in its folder" for name in report["folder"]]
    return faults


def _verb(what: str) -> str:
    if what.startswith(("read ", "list ", "write ", "change ", "fork ", "trace", "signal")):
        return what
    return f"have {what}"


async def examine(pool: SandboxPool, config: SandboxConfig, level: Isolation) -> list[str]:
    """Faults of the isolation that `pool` gives; empty = it holds. Raises SandboxError if no
    session can be had at all."""
    with contextlib.ExitStack() as stack:
        attacker, victim = [
            stack.enter_context(contextlib.closing(await pool.take())) for _ in range(2)
        ]
        with _bait() as bait:
            theirs = await _plant(victim)
            probe = _probe(bait, theirs, config, level)
            text = f"PROBE = {probe!r}\n{probe_source()}"
            outcome = await attacker.run(text, limit=_LIMIT_SECONDS, keep=_KEEP_BYTES)
            if outcome.ending is not Ending.OK:
                return [f"the self-test did not finish: {outcome.reason or outcome.output[-400:]}"]
            report = json.loads(outcome.output.splitlines()[-1])
            look = "kept, open('secret').read(), os.listdir('.')"
            still = await victim.run(look, limit=_LIMIT_SECONDS, keep=_KEEP_BYTES)
            faults = judge(report)
            deep = attacker.pid_namespaces
            if deep < (2 if level.shared_jail else 1):
                faults.append(f"is in {deep} pid namespaces below the service's own")
            if still.ending is not Ending.OK or still.output.strip() != _UNTOUCHED:
                faults.append("disturbed another session")
            return faults


async def _plant(victim: SandboxSession) -> str:
    """A file in another session's folder; returns its path."""
    code = "kept = 41\nopen('secret', 'w').write('s')\nimport os\nprint(os.path.abspath('secret'))"
    outcome = await victim.run(code, limit=_LIMIT_SECONDS, keep=_KEEP_BYTES)
    if outcome.ending is not Ending.OK:
        raise SandboxError(f"a session could not write in its own folder: {outcome.output[-400:]}")
    return outcome.output.splitlines()[-1]


def _probe(
    bait: Mapping[str, Any], theirs: str, config: SandboxConfig, level: Isolation
) -> dict[str, Any]:
    numbers = syscalls.NUMBERS[kernel.MACHINE]
    readable = [*bait["files"], "/etc/passwd", "/etc/shadow", os.path.expanduser("~/.profile")]
    listable = [os.path.dirname(path) for path in bait["files"]]
    writable = [*bait["files"], "/dev/shm/x", "/var/tmp/x", "/etc/x", "/usr/lib/x"]
    changeable = ["/usr", *(os.path.realpath(folder) for folder in config.packages)]
    if level.shared_jail:
        # Alone in its jail, a session's own /tmp and /proc are all that it finds there.
        readable += [theirs, "/proc/self/status"]
        listable += [os.path.dirname(os.path.dirname(theirs)), "/proc"]
        writable += ["/tmp/x"]
        # All that sessions have in common.
        changeable += ["/", "/dev", "/dev/null", "/proc", "/run", "/tmp"]
    return {
        "readable": readable,
        "listable": listable,
        "writable": writable,
        "changeable": changeable,
        "tcp": bait["tcp"],
        "abstract": bait["abstract"],
        "path_socket": bait["path_socket"],
        "own_pid_namespace": level.shared_jail,
        "capget": _CAPGET[kernel.MACHINE],
        "unshare": numbers["unshare"],
        "ptrace": numbers["ptrace"],
        "processes": config.processes,
        "file_bytes": config.file_bytes,
        "memory_bytes": config.memory_bytes,
    }


@contextlib.contextmanager
def _bait() -> Iterator[dict[str, Any]]:
    """Files and listeners that any process of this machine could reach, but a session must not."""
    abstract = f"toolsvc-{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack:
        _sweep_old_bait()
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix=_BAIT, dir=folder_for_sockets())
        )
        os.chmod(folder, 0o755)
        canary = os.path.join(folder, "canary")
        with open(canary, "w", encoding="utf-8") as file:
            file.write("canary")
        os.chmod(canary, 0o666)
        path_socket = os.path.join(folder, "socket")
        addresses: list[tuple[int, Any]] = [
            (socket.AF_INET, ("127.0.0.1", 0)),
            (socket.AF_UNIX, "\0" + abstract),
            (socket.AF_UNIX, path_socket),
        ]
        listeners = []
        for family, address in addresses:
            listener = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            listener.bind(address)
            listener.listen(8)
            listeners.append(listener)
        os.chmod(path_socket, 0o777)
        yield {
            "files": [canary],
            "tcp": list(listeners[0].getsockname()),
            "abstract": abstract,
            "path_socket": path_socket,
        }


def _sweep_old_bait() -> None:
    """What a service left that was killed during its self-test."""
    for path in Path(folder_for_sockets()).glob(f"{_BAIT}*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if status.st_uid == os.geteuid() and time.time() - status.st_mtime > _BAIT_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
