"""Checks of this machine: disk, clock, memory, cores, limits, text, network."""

from __future__ import annotations

import locale
import os
import resource
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime

import psutil

from console.doctor.types import Findings, Patient, ok, problem, warning

GIB = 1 << 30
LEAST_FREE = 2 * GIB
WRITTEN = 64 << 20
CHUNK = 4 << 20
LONGEST_S = 8.0
SLOW = 30 << 20
"""Bytes a second. A policy of 1 GB takes half a minute at this speed, and is written at each
publish."""
SLOW_SYNC_S = 0.1
"""Time of one small write that is slow: the engine's journal makes one a batch of events."""
EARLIEST = datetime(2024, 1, 1, tzinfo=UTC)
MOST_APART_S = 5.0
LEAST_MEMORY = 4 * GIB
"""Free: what the demonstration's processes take together, with some room."""
LEAST_FILES = 4096
"""Open at once: a socket for each stream and session, and the workers' pipes."""
LEAST_SHARED = 256 << 20
"""Free in /dev/shm, which the processes of torch and SGLang share."""
PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy", "HTTPS_PROXY")
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files with the bytes that a container may take."""
SHARED_SYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "lustre", "beegfs", "ceph")


def disk(patient: Patient) -> Findings:
    """Room and speed: 64 MiB are written, flushed and deleted. The clock of the file system."""
    at = patient.folder
    free = shutil.disk_usage(at).free
    if free < LEAST_FREE:
        fix = f"du -xsh {at}/* shows what takes it; or choose another run.folder"
        yield problem("disk", f"{free / GIB:.1f} GiB free at {at}", fix)
    try:
        with tempfile.TemporaryFile(dir=at, prefix=".toolwright-doctor-") as file:
            syncs = sorted(_write(file.fileno(), 4096, 4096)[1] for _ in range(5))
            apart = os.fstat(file.fileno()).st_mtime - time.time()
            size, seconds = _write(file.fileno(), min(WRITTEN, free // 4), CHUNK)
    except OSError as error:
        fix = f"ls -ld {at} shows whose it is; or choose another run.folder"
        yield problem("disk", f"{at} cannot be written ({error.strerror})", fix)
        return
    speed, sync = size / max(seconds, 1e-6), syncs[2]
    text = (
        f"{free / GIB:.0f} GiB free, {speed / (1 << 20):.0f} MiB/s, "
        f"{sync * 1000:.1f} ms a small write, at {at}"
    )
    if speed < SLOW or sync > SLOW_SYNC_S:
        fix = "choose a run.folder on a local disk; checkpoints and published weights go there"
        yield warning("disk", f"slow: {text}", fix)
    else:
        yield ok("disk", text)
    if abs(apart) > MOST_APART_S:
        sentence = f"the file system of {at} is {apart:+.0f} s apart from this machine's clock"
        yield warning("clock", sentence, "timedatectl set-ntp true as root, on both")
    mounts = (m for m in psutil.disk_partitions(all=True) if at.is_relative_to(m.mountpoint))
    kind = max(mounts, key=lambda mount: len(mount.mountpoint)).fstype
    if kind in SHARED_SYSTEMS:
        sentence = f"{at} is on {kind}: the engine's journal wants the locks of a local disk"
        fix = "put run.folder on a local disk, or keep engine and learner on one machine"
        yield warning("disk", sentence, fix)


def _write(file: int, size: int, chunk: int) -> tuple[int, float]:
    """(bytes, seconds) with the flush; LONGEST_S at most, without the flush itself."""
    data = os.urandom(chunk)
    began = time.monotonic()
    written = 0
    while written < size and time.monotonic() - began < LONGEST_S:
        written += os.write(file, data[: size - written])
    os.fsync(file)
    return written, time.monotonic() - began


def clock(_patient: Patient) -> Findings:
    now = datetime.now().astimezone()
    if now < EARLIEST:
        sentence = f"it is said to be {now:%Y-%m-%d}: certificates and file times will not fit"
        fix = "timedatectl set-ntp true as root; in a container it is the host's clock"
        yield problem("clock", sentence, fix)
    else:
        yield ok("clock", f"{now:%Y-%m-%d %H:%M:%S %Z}")


def memory(_patient: Patient) -> Findings:
    free, total = psutil.virtual_memory().available, psutil.virtual_memory().total
    for file in LIMITS:
        if os.path.exists(file):
            with open(file, encoding="ascii") as opened:
                word = opened.read().strip()
            total = min(total, int(word)) if word.isdecimal() else total
    text = f"{min(free, total) / GIB:.1f} of {total / GIB:.1f} GiB free"
    if min(free, total) < LEAST_MEMORY:
        sentence = f"{text}: sampler, engine and learner of the smallest runs take 3 to 4 together"
        yield warning("memory", sentence, "end other programs, or take a larger machine")
    else:
        yield ok("memory", text)
    shared = shutil.disk_usage("/dev/shm").free
    if shared < LEAST_SHARED:
        sentence = f"/dev/shm has {shared >> 20} MiB free, which SGLang and torch share"
        fix = "mount -o remount,size=2G /dev/shm as root, or `docker run --shm-size=2g`"
        yield warning("memory", sentence, fix)


def cores(patient: Patient) -> Findings:
    count = len(os.sched_getaffinity(0))
    if count < 2:
        yield warning("cores", "1 core: sampler and learner take turns, and a run twice as long")
    threads = patient.environment.get("OMP_NUM_THREADS", "")
    if count > 2 and not threads.isdecimal():
        sentence = (
            "OMP_NUM_THREADS is not set: processes that are started by hand take a thread a core "
            "each, and small models wait for each other (`toolwright run` sets it itself)"
        )
        yield warning("cores", sentence, "export OMP_NUM_THREADS=1")
    elif threads.isdecimal() and int(threads) > count:
        fix = f"export OMP_NUM_THREADS={max(1, count // 2)}"
        yield warning("cores", f"OMP_NUM_THREADS={threads} on {count} cores", fix)
    else:
        yield ok("cores", f"{count} cores")


def limits(_patient: Patient) -> Findings:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= LEAST_FILES:
        yield ok("limits", f"{soft} open files")
        return
    most = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    fix = "raise nofile in /etc/security/limits.conf, and log in again"
    sentence = f"{soft} files may be open at once: many streams and sessions need more"
    yield warning("limits", sentence, f"ulimit -n {most}" if most >= LEAST_FILES else fix)


def text(_patient: Patient) -> Findings:
    for what, name in (
        ("files are read and written as", locale.getpreferredencoding(False)),
        ("this terminal takes", sys.stdout.encoding or "utf-8"),
    ):
        if name.lower().replace("-", "") != "utf8":
            yield warning("text", f"{what} {name}", "export LC_ALL=C.UTF-8")
            return
    yield ok("text", "UTF-8")


def network(patient: Patient) -> Findings:
    """Proxies that catch requests to this machine's own servers. curl and SGLang's clients obey."""
    told = patient.environment
    proxies = ", ".join(name for name in PROXIES if told.get(name))
    spared = f"{told.get('no_proxy', '')},{told.get('NO_PROXY', '')}".replace(" ", "").split(",")
    if not proxies:
        yield ok("network", "no proxy")
    elif "*" in spared or {"localhost", "127.0.0.1"} <= set(spared):
        yield ok("network", f"a proxy ({proxies}) that leaves loopback alone")
    else:
        sentence = f"{proxies} would catch requests to servers on this machine"
        yield warning("network", sentence, "export no_proxy=localhost,127.0.0.1,::1")
