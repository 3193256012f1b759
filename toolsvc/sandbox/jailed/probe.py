# ruff: noqa: BLE001, B023, F821 - every attempt may fail in any way, and is made at once
# Runs as foreign code in a session and tries what foreign code must not be able to do. Prints
# one JSON object: what succeeded, by the words that the host's judgement uses, and what the
# kernel says of this process. `PROBE` is set by the host before this text.
import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import time

_libc = ctypes.CDLL(None, use_errno=True)
_folder = os.listdir(".")
_done = {}
_denied = {}


def _attempt(name, action):
    try:
        _done[name] = str(action())[:200]
    except BaseException as error:
        number = getattr(error, "errno", None)
        _denied[name] = errno.errorcode.get(number, type(error).__name__)


def _syscall(number, *arguments):
    result = _libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "denied")
    return result


def _read(path):
    with open(path, "rb") as file:
        return len(file.read(16))


def _write(path):
    with open(path, "wb") as file:
        return file.write(b"x")


def _change(path):
    """Changes it in a way that leaves it as it is. That another account owns it is not enough."""
    try:
        os.chmod(path, os.stat(path).st_mode & 0o7777)
    except OSError as error:
        if error.errno in (errno.EROFS, errno.ENOENT):
            raise
        return "it is not read-only"
    return "its mode"


def _enlarge_pipe():
    ends = os.pipe()
    try:
        return fcntl.fcntl(ends[1], 1031, 1 << 17)
    finally:
        for end in ends:
            os.close(end)


def _watch_folder():
    folder = os.open(".", os.O_RDONLY)
    try:
        return fcntl.fcntl(folder, fcntl.F_NOTIFY, fcntl.DN_ACCESS)
    finally:
        os.close(folder)


def _connect(family, kind, address):
    channel = socket.socket(family, kind)
    channel.settimeout(1)
    channel.connect(address)
    return "connected"


def _in_child(action):
    """A child is no leader of its group, to whom more is allowed."""
    pid = os.fork()
    if pid == 0:
        try:
            action()
        except OSError as error:
            os._exit(error.errno)
        os._exit(0)
    refused = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if refused:
        raise OSError(refused, "denied")
    return "in a child"


def _fork_beyond(limit):
    """More processes than the limit, each asleep; they are ended and reaped before the answer."""
    children = []
    try:
        while len(children) <= limit:
            pid = os.fork()
            if pid == 0:
                time.sleep(30)
                os._exit(0)
            children.append(pid)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, 0)
    return f"{len(children)} processes"


def _grow_file(size):
    with open("large", "wb") as file:
        try:
            os.ftruncate(file.fileno(), size)
        finally:
            os.unlink("large")
    return size


def _map_memory(size):
    import mmap

    mmap.mmap(-1, size).close()
    return size


def _capabilities():
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    _syscall(PROBE["capget"], header, data)
    return any(data)


for _path in PROBE["readable"]:
    _attempt("read " + _path, lambda: _read(_path))
for _path in PROBE["listable"]:
    _attempt("list " + _path, lambda: len(os.listdir(_path)))
for _path in PROBE["writable"]:
    _attempt("write " + _path, lambda: _write(_path))
for _path in PROBE["changeable"]:
    _attempt("change " + _path, lambda: _change(_path))
_attempt("extended attributes", lambda: os.setxattr(1, "user.x", b"x"))
_attempt("a larger pipe", _enlarge_pipe)
_attempt("news of a folder", _watch_folder)
_attempt("TCP", lambda: _connect(socket.AF_INET, socket.SOCK_STREAM, tuple(PROBE["tcp"])))
_attempt("UDP", lambda: _connect(socket.AF_INET, socket.SOCK_DGRAM, tuple(PROBE["tcp"])))
_attempt(
    "abstract socket",
    lambda: _connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + PROBE["abstract"]),
)
_attempt("path socket", lambda: _connect(socket.AF_UNIX, socket.SOCK_STREAM, PROBE["path_socket"]))
if PROBE["own_pid_namespace"]:
    _attempt("parent in sight", lambda: os.kill(os.getppid() or 1 / 0, 0))
    _attempt("others in sight", lambda: os.kill(-1, 0))
_attempt("namespace", lambda: _syscall(PROBE["unshare"], 0x10000000))
_attempt("scheduling group of its own", lambda: _in_child(os.setsid))
_attempt("memory for Landlock's rules", lambda: _syscall(444, struct.pack("=Q", 1), 8, 0))
_attempt("trace", lambda: _syscall(PROBE["ptrace"], 0, 0, 0, 0))
_attempt("io_uring", lambda: _syscall(425, 1, ctypes.create_string_buffer(256)))
_attempt("fork over the limit", lambda: _fork_beyond(PROBE["processes"]))
_attempt("file over the limit", lambda: _grow_file(PROBE["file_bytes"] + 1))
_attempt("memory over the limit", lambda: _map_memory(PROBE["memory_bytes"] + 1))
_attempt("capabilities", lambda: "some" if _capabilities() else 1 / 0)
_fds = []
for _fd in range(64):
    try:
        os.fstat(_fd)
        _fds.append(_fd)
    except OSError:
        pass
print(
    json.dumps(
        {
            "done": _done,
            "denied": _denied,
            "no_new_privs": _libc.prctl(39, 0, 0, 0, 0),
            "seccomp": _libc.prctl(21, 0, 0, 0, 0),
            "environment": sorted(os.environ),
            "descriptors": _fds,
            "folder": _folder,
            "core": resource.getrlimit(resource.RLIMIT_CORE)[1],
            "uid_is_root": os.getuid() == 0,
        }
    )
)
