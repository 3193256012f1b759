"""The order in which a session's process gives up what it could do.

Invariants
- `Confinement` is made once in the zygote, before any foreign code exists; a forked child only
  applies it, so that the expensive parts (open paths, the compiled filter) are shared.
- Every step must succeed: an OSError escapes, the child dies, and the host hears of it. There
  is no lesser confinement to fall back to in here; the host chooses the level.
- After `apply` the process can read the system's interpreter and libraries and the operator's
  packages, read and write its own folder, and reach nothing else: no path, process, socket or
  capability. (Not so where the operator asked for no jail at all: there only limits hold.)

It does not know what the session will run.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from . import bpf, kernel

SESSION_SOCKET = 3
"""Number under which the child keeps its socket to the host; 0 is empty, 1 and 2 the output."""

_SYSTEM = (
    *("/bin", "/lib", "/lib32", "/lib64", "/usr/bin", "/usr/include"),
    *("/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/share"),
)
"""Programs, libraries, and what they read of the system's own: headers, templates, tables."""
_FILES = ("/etc/ld.so.cache", "/etc/localtime")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/random")


ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""All that foreign code finds in its environment, beside HOME and TMPDIR: its own folder."""


class Confinement:
    """What every session of this jail is held to.

    `settings`: `namespaces` (own user, pid and mount namespace), `landlock_abi` (0 = leave it out),
    `seccomp`, `limits` (address_space, file_bytes: bytes; processes, open_files; cpu_seconds;
    one that is left out is not set), `packages` (folders that may be read).
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.namespaces = bool(settings["namespaces"])
        self.landlock_abi = int(settings["landlock_abi"])
        self.limits: Mapping[str, int] = settings["limits"]
        self.clone_flags = kernel.OWN_NAMESPACES if self.namespaces else 0
        # Taken now: later, what is opened by its path is opened for reading alone.
        self._processes = os.open("/proc", os.O_PATH | os.O_CLOEXEC)
        self.packages: Sequence[str] = settings["packages"]
        self._filter = None
        if settings["seccomp"]:
            self._filter = kernel.SeccompProgram(bpf.session_program(kernel.MACHINE))
        self._allowed = self._open_allowed() if self.landlock_abi else []

    def prepare(self) -> None:
        """What may be done once, in the zygote, instead of in every child."""
        with contextlib.suppress(PermissionError):
            os.setsid()  # Refused to one who leads a group already, which does as well.
        os.environ.clear()
        os.environ.update(ENVIRONMENT)
        if self.packages:
            # For the Pythons that a session starts.
            os.environ["PYTHONPATH"] = ":".join(self.packages)

    def apply(self, folder: int) -> None:
        """Confines the calling process for good. `folder`: descriptor of its own folder, in which
        it is."""
        # A group of its own, for signals. Not a session (setsid): the kernel would set up and
        # tear down a scheduling group for each, which costs more than all namespaces together,
        # and a thousand busy ones would leave the service a thousandth of the machine.
        os.setpgid(0, 0)
        # The zygote hides its own memory from its user; the watch over a session's needs to see.
        kernel.dumpable()
        self._volunteer_for_the_oom_killer()
        kernel.no_new_privileges()
        if self.landlock_abi:
            own = (folder, kernel.own_folder_rights(self.landlock_abi))
            kernel.landlock_restrict(self.landlock_abi, [*self._allowed, own])
        os.closerange(SESSION_SOCKET + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._limit()
        kernel.drop_capabilities(in_own_namespace=self.namespaces)
        if self._filter is not None:
            self._filter.install()

    def _volunteer_for_the_oom_killer(self) -> None:
        """When the machine runs out of memory a session shall die, not the service."""
        descriptor = os.open("self/oom_score_adj", os.O_WRONLY, dir_fd=self._processes)
        os.write(descriptor, b"1000")
        os.close(descriptor)

    def _limit(self) -> None:
        limits = self.limits
        for which, value in (
            (resource.RLIMIT_AS, limits["address_space"]),
            (resource.RLIMIT_FSIZE, limits["file_bytes"]),
            (resource.RLIMIT_NPROC, limits.get("processes")),
            (resource.RLIMIT_NOFILE, limits["open_files"]),
            (resource.RLIMIT_CPU, limits["cpu_seconds"]),
            (resource.RLIMIT_MEMLOCK, 64 * 1024),
            (resource.RLIMIT_CORE, 0),
            # A process that may raise a priority would undo what the watch lowers.
            (resource.RLIMIT_NICE, 0),
            # Signals of the account in the session's user namespace; timers count too.
            (resource.RLIMIT_SIGPENDING, limits.get("signals")),
        ):
            if value is not None:
                resource.setrlimit(which, (value, value))

    def _open_allowed(self) -> list[tuple[int, int]]:
        read = kernel.FS_READ_FILE | kernel.FS_READ_DIR | kernel.FS_EXECUTE
        wanted = [(path, read) for path in _SYSTEM]
        for prefix in {sys.base_prefix, sys.base_exec_prefix} - {"/usr"}:
            wanted += [(os.path.join(prefix, part), read) for part in ("bin", "lib")]
        wanted += [(path, read) for path in self.packages]
        wanted += [(path, kernel.FS_READ_FILE) for path in _FILES]
        wanted += [(path, kernel.FS_READ_FILE | kernel.FS_WRITE_FILE) for path in _DEVICES]
        seen: set[tuple[int, int]] = set()
        allowed = []
        for path, rights in wanted:
            try:
                descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) in seen:
                os.close(descriptor)
                continue
            seen.add((status.st_dev, status.st_ino))
            allowed.append((descriptor, rights))
        return allowed
