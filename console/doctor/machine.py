"""Memory, cores, threads, limits, shared memory, text and network settings of this process."""

from __future__ import annotations

import locale
import os
import resource
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from console.doctor.types import Check, Finding, Findings, Patient, ok, problem, warning

MEMORY, CORES, LIMITS, TEXT, NETWORK = "memory", "cores", "limits", "text", "network"
GIB = 1 << 30
LEAST_MEMORY = 4 * GIB
"""Free: what the demonstration's processes take together, with some room."""
LEAST_FILES = 4096
"""Open at once: a socket for each stream and session, and the workers' pipes."""
LEAST_SHARED = 256 << 20
"""Least size of /dev/shm, which torch's and SGLang's processes share."""
_PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy", "HTTPS_PROXY")
_LOOPBACK = ("localhost", "127.0.0.1")


def memory(_patient: Patient) -> Findings:
    free, total = psutil.virtual_memory().available, psutil.virtual_memory().total
    limit = _cgroup_limit()
    if limit is not None and limit < total:
        total, free = limit, min(free, limit)
    text = f"{free / GIB:.1f} of {total / GIB:.1f} GiB free"
    found: list[Finding] = [ok(MEMORY, text)]
    if free < LEAST_MEMORY:
        sentence = f"{text}: sampler, engine and learner of the smallest runs take 3 to 4 together"
        found = [warning(MEMORY, sentence, "end other programs, or take a larger machine")]
    shared = shutil.disk_usage("/dev/shm")
    if shared.free < LEAST_SHARED:
        sentence = f"/dev/shm has {shared.free >> 20} MiB free, which SGLang and torch share"
        mend = "mount -o remount,size=2G /dev/shm as root, or `docker run --shm-size=2g`"
        found.append(warning(MEMORY, sentence, mend))
    return found


def cores(patient: Patient) -> Findings:
    count = len(os.sched_getaffinity(0))
    found = [ok(CORES, f"{count} cores")]
    if count < 2:
        found = [warning(CORES, "1 core: sampler and learner take turns, and a run twice as long")]
    asked = patient.environment.get("OMP_NUM_THREADS", "")
    if not asked.isdecimal():
        sentence = (
            "OMP_NUM_THREADS is not set: processes that are started by hand take a thread a core "
            "each, and small models wait for each other (`toolwright run` sets it itself)"
        )
        found.append(
            ok(CORES, sentence)
            if count <= 2
            else warning(CORES, sentence, "export OMP_NUM_THREADS=1")
        )
    elif int(asked) > count:
        sentence = f"OMP_NUM_THREADS={asked} on {count} cores"
        found.append(warning(CORES, sentence, f"export OMP_NUM_THREADS={max(1, count // 2)}"))
    return found


def limits(_patient: Patient) -> Findings:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= LEAST_FILES:
        return [ok(LIMITS, f"{soft} open files")]
    sentence = f"{soft} files may be open at once: many streams and sessions need more"
    most = hard if hard != resource.RLIM_INFINITY else 65_536
    if most >= LEAST_FILES:
        return [warning(LIMITS, sentence, f"ulimit -n {min(most, 65_536)}")]
    return [
        warning(LIMITS, sentence, "raise nofile in /etc/security/limits.conf, and log in again")
    ]


def text(_patient: Patient) -> Findings:
    encoding = locale.getpreferredencoding(False)
    if encoding.lower().replace("-", "") != "utf8":
        sentence = f"files are read and written as {encoding} where nobody says how"
        return [problem(TEXT, sentence, "export LC_ALL=C.UTF-8")]
    if (sys.stdout.encoding or "").lower().replace("-", "") not in ("utf8", ""):
        sentence = f"this terminal takes {sys.stdout.encoding}"
        return [warning(TEXT, sentence, "export LC_ALL=C.UTF-8")]
    return [ok(TEXT, "UTF-8")]


def network(patient: Patient) -> Findings:
    """Proxies that catch requests to this machine's own servers. curl and SGLang's clients obey."""
    set_here = [name for name in _PROXIES if patient.environment.get(name)]
    if not set_here:
        return [ok(NETWORK, "no proxy")]
    spared = _spared(patient.environment)
    if "*" in spared or all(host in spared for host in _LOOPBACK):
        return [ok(NETWORK, f"a proxy ({', '.join(set_here)}) that leaves loopback alone")]
    sentence = f"{', '.join(set_here)} would catch requests to servers on this machine"
    return [warning(NETWORK, sentence, "export no_proxy=localhost,127.0.0.1,::1")]


def _spared(environment: Mapping[str, str]) -> list[str]:
    both = f"{environment.get('no_proxy', '')},{environment.get('NO_PROXY', '')}"
    return [word.strip() for word in both.split(",")]


def _cgroup_limit() -> int | None:
    """Bytes that a container may take; None where there is no such bound."""
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            word = Path(file).read_text(encoding="utf-8").strip()
        except OSError:
            continue
        if word.isdecimal():
            return int(word)
    return None


CHECKS = (
    Check(subject=MEMORY, look=memory),
    Check(subject=CORES, look=cores),
    Check(subject=LIMITS, look=limits),
    Check(subject=TEXT, look=text),
    Check(subject=NETWORK, look=network),
)
