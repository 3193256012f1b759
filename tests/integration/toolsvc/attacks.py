"""Foreign code that means harm, by name: each text begins in an empty folder of a session.

The texts find `TARGET` (what the attacker is kind enough to be told: see `test_sandbox_attacks`)
and the helpers of `PRELUDE`. A try is held when it ends in an OSError (or one of `DENIALS`); any
other ending, a slip in the text included, counts as a break-in.
"""

from tests.integration.toolsvc.attacks_on_kernel import PRIVILEGES, SOCKETS, SYSTEM_CALLS
from toolsvc.sandbox.jailed.walls import kernel, syscalls

DENIALS = {
    *("OSError", "PermissionError", "FileNotFoundError", "NotADirectoryError", "IsADirectoryError"),
    *("ProcessLookupError", "ConnectionRefusedError", "BlockingIOError", "MemoryError"),
}

# Calls that the session's filter does not name, by machine.
MORE_NUMBERS = {
    syscalls.X86_64: {
        "prlimit64": 302,
        "pidfd_open": 434,
        "execveat": 322,
        "capset": 126,
        "ioprio_set": 251,
        "sched_setscheduler": 144,
        "tgkill": 234,
        "setgroups": 116,
        "prctl": 157,
        "fallocate": 285,
    },
    syscalls.AARCH64: {
        "prlimit64": 261,
        "pidfd_open": 434,
        "execveat": 281,
        "capset": 91,
        "ioprio_set": 30,
        "sched_setscheduler": 119,
        "tgkill": 131,
        "setgroups": 159,
        "prctl": 167,
        "fallocate": 47,
    },
}

PRELUDE = f"""
import ctypes, errno, fcntl, mmap, os, resource, signal, socket, stat, struct, subprocess, sys
import termios, threading, time

NUMBERS = { ({**syscalls.NUMBERS[kernel.MACHINE], **MORE_NUMBERS[kernel.MACHINE]})!r}
libc = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    "A bare system call; OSError if the kernel refuses it."
    result = libc.syscall(NUMBERS[name], *[
        ctypes.c_long(value) if isinstance(value, int) else value for value in arguments
    ])
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def in_child(action):
    "What the action comes to in a process that may die of it."
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            action()
            os.write(write, b"done")
        except OSError as error:
            os.write(write, str(error.errno).encode())
        finally:
            os._exit(0)
    os.close(write)
    said = os.read(read, 100)
    os.close(read)
    status = os.waitpid(pid, 0)[1]
    if said == b"done":
        return
    raise OSError(int(said or 0), f"refused, or killed by signal {{status & 127}}")


def held(*actions):
    "Every one of them must be refused."
    for action in actions:
        try:
            value = action()
        except OSError:
            continue
        raise SystemExit(f"not refused: {{value!r}}")
    raise PermissionError("all refused")


def places():
    "Paths that a session has in common with other sessions or with the machine."
    own, above = os.getcwd(), []
    while TARGET["shared"] and own != "/":
        own = os.path.dirname(own)
        above.append(own)
    if TARGET["shared"]:
        # Alone in its jail, a session may say that it used the device just now, as anybody may.
        above.append("/dev/null")
    folder = TARGET["packages"]
    return [
        *(*above, folder, folder + "/module.py", folder + "/package", "/usr", "/usr/bin/env"),
        *("/", "/dev", "/dev/shm", "/proc", "/run", "/lib", "/etc"),
    ]


def other_pids():
    "Numbers of processes that are not this one's and may exist."
    numbers = [*TARGET["pids"], os.getppid(), *range(1, 400)]
    try:
        numbers += [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        pass
    return sorted({{pid for pid in numbers if pid not in (0, os.getpid())}})
"""

FILES = {
    f"write {path}": f"open({path!r}, 'w').write('x')"
    for path in (
        *("/etc/x", "/usr/local/x", "/usr/lib/x", "/usr/bin/x", "/var/tmp/x", "/dev/shm/x"),
        *("/home/x", "/root/x", "/srv/x", "/opt/x", "/proc/sysrq-trigger", "/x"),
        *("/proc/sys/kernel/core_pattern", "/sys/kernel/uevent_helper", "/run/x", "/dev/x"),
    )
}
FILES |= {
    f"read {path}": f"open({path!r}, 'rb').read(64)"
    for path in (
        *("/etc/shadow", "/etc/passwd", "/etc/hostname", "/root/.bashrc", "/proc/kcore"),
        *("/dev/kmsg", "/dev/mem", "/dev/vda", "/dev/sda", "/dev/fuse", "/dev/kvm"),
        *("/run/firejail/firejail-run.lock", "/var/log/dpkg.log"),
    )
}
FILES |= {
    f"list {path}": f"os.listdir({path!r})"
    for path in ("/root", "/home/games", "/var/log", "/srv/x", "/sys/kernel", "/run/user")
}
FILES |= {
    "write bait": "held(*(lambda p=p: open(p, 'w') for p in TARGET['files']))",
    "read bait": "held(*(lambda p=p: open(p).read() for p in TARGET['files']))",
    "list bait": "held(*(lambda p=p: os.listdir(os.path.dirname(p)) for p in TARGET['files']))",
    "change modes of bait": "held(*(lambda p=p: os.chmod(p, 0) for p in TARGET['files']))",
    "times of bait": "held(*(lambda p=p: os.utime(p, (1, 1)) for p in TARGET['files']))",
    "stat of bait": "held(*(lambda p=p: os.stat(p) for p in TARGET['files']))",
    "remove bait": "held(*(lambda p=p: os.unlink(p) for p in TARGET['files']))",
    "this repository": "open(TARGET['repository'])",
    "by a symbolic link": "os.symlink(TARGET['files'][0], 'link')\nopen('link').read()",
    "by a link to a folder": "os.symlink('/', 'root')\nopen('root/etc/passwd').read()",
    "by a hard link": "os.link(TARGET['files'][0], 'hard')",
    "hard link to a program": "os.link('/usr/bin/env', 'env')",
    "by leaving upwards": "open('../' * 20 + 'etc/passwd').read()",
    "rename into /usr": "open('x', 'w').close()\nos.rename('x', '/usr/lib/x')",
    "rename the own folder's parent": "os.rename('..', '../../moved')",
    "rename /usr": "os.rename('/usr', '/usr2')",
    "device node": "os.mknod('null', 0o600 | stat.S_IFCHR, os.makedev(1, 3))",
    "block node": "os.mknod('disk', 0o600 | stat.S_IFBLK, os.makedev(254, 0))",
    "give a file away": "open('mine', 'w').close()\nos.chown('mine', 0, 0)",
    "chmod /usr": "os.chmod('/usr', 0o777)",
    "truncate a library": "os.truncate('/usr/bin/env', 0)",
    "kernel attributes": "os.setxattr('.', 'trusted.x', b'1')",
    "terminal": "os.open('/dev/tty', os.O_RDWR)",
    "type for the terminal": "fcntl.ioctl(0, termios.TIOCSTI, b'x')",
    "type by the output": "fcntl.ioctl(1, termios.TIOCSTI, b'x')",
}

PROCESSES = {
    "signal the service and its other sessions": (
        "held(*(lambda p=p: os.kill(p, 0) for p in TARGET['pids']))"
    ),
    "a handle of the service": "held(*(lambda p=p: os.pidfd_open(p) for p in TARGET['pids']))",
    "signals by I/O": (
        "held(*(lambda p=p: fcntl.fcntl(3, fcntl.F_SETOWN, p) for p in TARGET['pids']))"
    ),
    "its environment": """
for pid in ["self", *other_pids()]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            if b"API_KEY" in file.read():
                raise SystemExit(f"environment of {pid}")
    except OSError:
        pass
raise PermissionError("nothing found")
""",
    "its arguments": """
for pid in other_pids():
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if b"pytest" in file.read():
                raise SystemExit(f"arguments of {pid}")
    except OSError:
        pass
raise PermissionError("nothing found")
""",
    "memory by /proc": "held(*(lambda p=p: open(f'/proc/{p}/mem', 'r+b') for p in other_pids()))",
    "roots by /proc": (
        "held(*(lambda p=p: os.stat(f'/proc/{p}/root/etc/shadow') for p in other_pids()))"
    ),
    "descriptors by /proc": (
        "held(*(lambda p=p: os.listdir(f'/proc/{p}/fd') for p in TARGET['pids']))"
    ),
}

SHARED = {
    "modes": "held(*(lambda p=p: os.chmod(p, 0) for p in places()))",
    "modes by a descriptor": (
        "held(*(lambda p=p: os.fchmod(os.open(p, os.O_RDONLY), 0) for p in places()))"
    ),
    "times": "held(*(lambda p=p, t=t: os.utime(p, t) for p in places() for t in (None, (1, 1))))",
    "owners": "held(*(lambda p=p: os.chown(p, os.getuid(), os.getgid()) for p in places()))",
    "attributes": "held(*(lambda p=p: os.setxattr(p, 'user.note', b'x') for p in places()))",
    "access lists": (
        "acl = struct.pack('<I' + 'HHI' * 3, 2, *(1, 0, 2**32 - 1), *(4, 0, 2**32 - 1),"
        " *(32, 0, 2**32 - 1))\n"
        "held(*(lambda p=p: os.setxattr(p, 'system.posix_acl_access', acl) for p in places()))"
    ),
    "flags": """
held(*(
    lambda p=p: fcntl.ioctl(os.open(p, os.O_RDONLY), 0x40086602, struct.pack("q", 0x80))
    for p in places()
))
""",
    "seals of contents": """
request = struct.pack("=IIIIQIIQ88x", 1, 1, 4096, 0, 0, 0, 0, 0)
held(*(lambda p=p: fcntl.ioctl(os.open(p, os.O_RDONLY), 0x40806685, request) for p in places()))
""",
    "new entries": "held(*(lambda p=p: os.mkdir(os.path.join(p, 'note')) for p in places()))",
    "renamed": "held(*(lambda p=p: os.rename(p, p + 'x') for p in places()))",
    "removed": "held(*(lambda p=p: os.rmdir(p) for p in places()))",
    "mounted on": "held(*(lambda p=p: call('mount', b'x', p.encode(), b'tmpfs', 0, 0)"
    " for p in places()))",
    "made writable again": """
attributes = struct.pack("QQQQ", 0, 1, 0, 0)
held(
    lambda: call("mount_setattr", -100, b"/", 0x8000, attributes, 32),
    lambda: call("mount", 0, b"/", 0, 32, 0),
    lambda: call("umount2", os.path.dirname(os.getcwd()).encode(), 2),
    lambda: call("umount2", os.getcwd().encode(), 2),
)
""",
    "attributes of the output": "os.setxattr(1, 'user.note', b'x')",
    "mode of an inherited file": "os.fchmod(0, 0)",
    # Of a file that the account owns: whoever writes to it waits until the lease is broken.
    "a lease": "held(*(lambda p=p: fcntl.fcntl(os.open(p, os.O_RDONLY), fcntl.F_SETLEASE,"
    " fcntl.F_RDLCK) for p in places()))",
    "news of a folder": "held(*(lambda p=p: fcntl.fcntl(os.open(p, os.O_RDONLY), fcntl.F_NOTIFY,"
    " fcntl.DN_ACCESS | fcntl.DN_MULTISHOT) for p in places()))",
    "room of pipes": "fcntl.fcntl(os.pipe()[1], 1031, 1 << 20)",
}
"""What one session does to what all have in common."""

BETWEEN_SESSIONS = {
    "read": "open(TARGET['theirs']).read()",
    # In a jail or a mount namespace of one's own, their path leads to one's own folder.
    "write": """
for mode in "wa":
    open(TARGET["theirs"], mode).write("mine")
os.unlink(TARGET["theirs"])
open(os.path.join(os.path.dirname(TARGET["theirs"]), "planted"), "w").write("mine")
os.unlink("planted")
raise PermissionError("it was a file of my own")
""",
    "truncate": "os.truncate(TARGET['theirs'], 0)",
    "remove": "os.unlink(TARGET['theirs'])",
    "rename": "os.rename(TARGET['theirs'], 'mine')",
    "replace": "open('mine', 'w').close()\nos.replace('mine', TARGET['theirs'])\n"
    "os.unlink('secret')\nraise PermissionError('by a file of my own')",
    "hard link": "os.link(TARGET['theirs'], 'mine')",
    "symbolic link": "os.symlink(TARGET['theirs'], 'link')\nopen('link').read()",
    "list": "seen = os.listdir(os.path.dirname(TARGET['theirs']))\n"
    "raise SystemExit(seen) if seen else PermissionError('alone')",
    "list all": """
above = os.path.dirname(os.path.dirname(TARGET['theirs']))
seen = set(os.listdir(above)) - {os.path.basename(os.getcwd())}
raise SystemExit(seen) if seen else PermissionError("alone")
""",
    "enter": "os.chdir(os.path.dirname(TARGET['theirs']))\nopen('secret').read()",
    "what was inherited": """
for descriptor in range(4096):
    try:
        held = os.fstat(descriptor)
    except OSError:
        continue
    if descriptor > 3 or stat.S_ISDIR(held.st_mode):
        raise SystemExit(f"descriptor {descriptor}")
raise PermissionError("nothing")
""",
    "by working folder": (
        "held(*(lambda p=p: os.listdir(f'/proc/{p}/cwd') for p in TARGET['pids']))"
    ),
    "by folders in /proc": """
held(*(
    lambda p=p, way=way: os.stat(f"/proc/{p}/{way}/secret")
    for p in other_pids()
    for way in ("cwd", f"root{os.path.dirname(TARGET['theirs'])}", "task/1/cwd")
))
""",
    "modes by /proc": "held(*(lambda p=p: os.chmod(f'/proc/{p}/cwd/secret', 0)"
    " for p in other_pids()))",
    "list mounts": """
held(
    lambda: call("listmount", struct.pack("=IIQQ", 24, 0, 2**64 - 1, 0), bytes(800), 100, 0),
    lambda: open("/proc/self/mountinfo").read() if TARGET["shared"] else os.stat("/nowhere"),
)
""",
    "abstract socket of theirs": "socket.socket(socket.AF_UNIX).connect('\\0theirs')",
}

TRIES = {
    f"{group}: {name}": text
    for group, texts in {
        "files": FILES,
        "sockets": SOCKETS,
        "system calls": SYSTEM_CALLS,
        "privileges": PRIVILEGES,
        "processes": PROCESSES,
        "in common": SHARED,
        "sessions": BETWEEN_SESSIONS,
    }.items()
    for name, text in texts.items()
}
