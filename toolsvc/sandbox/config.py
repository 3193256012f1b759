"""What an operator may set about the sandbox, and the levels of isolation.

Sizes are bytes, times are seconds. Limits hold for one session, all its processes together,
unless the field says otherwise.
"""

from __future__ import annotations

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
    """One jail for each session, for want of user namespaces or Landlock; ten times dearer."""

    @property
    def shared_jail(self) -> bool:
        return self is not Isolation.PER_SESSION


FULL_LANDLOCK_ABI = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxConfig:
    """Defaults suit untrusted code written by a policy in training."""

    isolation: Isolation | None = None
    """None = the best that passes its self-test."""
    landlock_abi: int | None = None
    """Pretend that the kernel's Landlock is no newer than this."""
    user_namespaces: bool = True
    """False: pretend that there are none."""
    python: str | None = None
    """Interpreter inside the jail; None = the system's own."""
    user: str | None = None
    """Account that the jail runs as when the service is root."""
    shards: int = 2
    """Jails at once, where sessions share them; a lost jail loses only its own sessions."""
    ready: int = 32
    """Sessions held ready before anyone asks."""
    starting: int = 32
    """Sessions being created at once, at most."""
    memory_bytes: int = 1024 * MIB
    """Also the address space of each single process."""
    disk_bytes: int = 256 * MIB
    file_bytes: int = 64 * MIB
    """Of one file."""
    processes: int = 64
    """Threads count."""
    open_files: int = 64
    """Of one process."""
    cpu_seconds: int = 3600
    """Of one process."""

    def limits(self) -> dict[str, int]:
        """The resource limits that every process of a session gets."""
        return {
            "address_space": self.memory_bytes,
            "file_bytes": self.file_bytes,
            "processes": self.processes,
            "open_files": self.open_files,
            "cpu_seconds": self.cpu_seconds,
        }


def possible_levels(config: SandboxConfig, kernel_abi: int) -> list[tuple[Isolation, int]]:
    """Levels worth a self-test here, best first, each with the Landlock ABI to use in it."""
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


def zygote_settings(config: SandboxConfig, level: Isolation, abi: int) -> dict[str, Any]:
    """What the zygote of a jail at this level is told."""
    return {
        "root": "/tmp/sessions",  # the jail's own /tmp
        "memory_bytes": config.memory_bytes,
        "disk_bytes": config.disk_bytes,
        "confinement": {
            "namespaces": level.shared_jail,
            "landlock_abi": abi,
            "limits": config.limits(),
        },
    }
