"""The operator's settings of the sandbox, and the levels of isolation.

Sizes are bytes, times are seconds. Limits hold for one session, all its processes together,
unless the field says otherwise.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MIB = 1024 * 1024


class Isolation(StrEnum):
    """How sessions are kept from the machine and from each other, best first."""

    FULL = "full"
    """One jail for many sessions; each in its own user and pid namespace, under Landlock ABI 6 or
    newer (files, TCP, signals, abstract sockets) and seccomp."""
    COMPAT = "compat"
    """The same on a kernel whose Landlock (ABI 1 to 5) does not cover signals and sockets: the pid
    namespace hides what could be signalled, seccomp denies sockets."""
    PER_SESSION = "per-session"
    """One jail for each session, if user namespaces or Landlock are missing; ten times as
    expensive."""
    NONE = "none"
    """No jail: the code may do everything that the account may. Never chosen automatically."""

    @property
    def shared_jail(self) -> bool:
        return self in (Isolation.FULL, Isolation.COMPAT)


class Backend(StrEnum):
    """Program that makes the jails. One never replaces another automatically."""

    FIREJAIL = "firejail"
    """Set-uid root: also where unprivileged user namespaces are forbidden."""
    BUBBLEWRAP = "bubblewrap"
    """No set-uid program; shows the jail an allow-list of folders instead of hiding a deny-list."""
    NONE = "none"
    """Nothing. Needs `allow_unsandboxed` as well."""


class Driver(StrEnum):
    """How a confined process handles its calls: a module of `jailed.drivers`."""

    INTERPRETER = "interpreter"
    """A call is Python code, run in the process itself."""
    SHELL = "shell"
    """A call is JSON for a bash of the session's own and for its file tools."""
    DATABASE = "database"
    """A call is JSON for an SQLite database of the session's own."""


FULL_LANDLOCK_ABI = 6
_SIGNALS = 1024
"""Maximum pending signals of a session, timers included; by default an account has a few thousand
for all its sessions together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxConfig:
    """Defaults suit untrusted code written by a policy in training."""

    backend: Backend = Backend.FIREJAIL
    allow_unsandboxed: bool = False
    """The second of the two settings that running without a jail requires."""
    isolation: Isolation | None = None
    """Isolation level; None = the best level that passes its self-test."""
    landlock_abi: int | None = None
    """Pretend that the kernel's Landlock is no newer than this."""
    user_namespaces: bool = True
    """False: pretend that the kernel has no user namespaces."""
    python: str | None = None
    """Interpreter inside the jail; None = the system's own."""
    packages: tuple[str, ...] = ()
    """Folders of third-party packages that sessions may import from and read, such as a virtual
    environment's `lib/python3.11/site-packages`."""
    preload: tuple[str, ...] = ()
    """Modules imported before the first session, so that all share them."""
    user: str | None = None
    """Account that the jail runs as when the service is root."""
    shards: int = 2
    """Jails at once, where sessions share them; a lost jail loses only its own sessions."""
    ready: int = 32
    """Sessions held ready in advance."""
    starting: int = 32
    """Maximum number of sessions that are created at once."""
    memory_bytes: int = 1024 * MIB
    """Memory of one session; also the address space of each single process."""
    disk_bytes: int = 256 * MIB
    file_bytes: int = 64 * MIB
    """Largest size of one file."""
    processes: int = 64
    """Maximum processes and threads of one session."""
    open_files: int = 64
    """Open files of one process."""
    cpu_seconds: int = 3600
    """CPU time of one process."""

    def limits(self, *, own_count: bool = True) -> dict[str, int]:
        """The resource limits that every process of a session gets. `own_count`: the kernel counts
        the session's processes separately from others of its account."""
        limits = {
            "address_space": self.memory_bytes,
            "file_bytes": self.file_bytes,
            "processes": self.processes,
            "open_files": self.open_files,
            "cpu_seconds": self.cpu_seconds,
            "signals": _SIGNALS,
        }
        if not own_count:
            # The limit would deny a new session its first process as soon as others hold that many.
            del limits["processes"], limits["signals"]
        return limits


def possible_levels(config: SandboxConfig, kernel_abi: int) -> list[tuple[Isolation, int]]:
    """Levels worth a self-test here, best first, each with the Landlock ABI to use in it."""
    if config.backend is Backend.NONE:
        return [(Isolation.NONE, 0)] if config.isolation in (None, Isolation.NONE) else []
    abi = kernel_abi if config.landlock_abi is None else min(kernel_abi, config.landlock_abi)
    levels: list[tuple[Isolation, int]] = []
    if config.user_namespaces and abi >= FULL_LANDLOCK_ABI:
        levels.append((Isolation.FULL, abi))
    if config.user_namespaces and abi >= 1:
        levels.append((Isolation.COMPAT, min(abi, FULL_LANDLOCK_ABI - 1)))
    levels.append((Isolation.PER_SESSION, abi))
    if config.isolation is None:
        return levels
    return [level for level in levels if level[0] is config.isolation]


def zygote_settings(
    config: SandboxConfig, level: Isolation, abi: int, driver: Driver = Driver.INTERPRETER
) -> dict[str, Any]:
    """Settings for the zygote of a jail at this level."""
    jailed = level is not Isolation.NONE
    return {
        "driver": driver.value,
        "jailed": jailed,
        "memory_bytes": config.memory_bytes,
        "disk_bytes": config.disk_bytes,
        "preload": config.preload,
        "confinement": {
            "namespaces": level.shared_jail,
            "landlock_abi": abi,
            "seccomp": jailed,
            "limits": config.limits(own_count=jailed),
            "packages": [os.path.realpath(folder) for folder in config.packages],
        },
    }
