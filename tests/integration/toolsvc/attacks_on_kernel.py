"""Attacks of `attacks` on sockets, system calls and privileges, by name."""

from toolsvc.sandbox.jailed.walls import kernel, syscalls

SOCKETS = {
    "tcp": "socket.create_connection(tuple(TARGET['tcp']), 1)",
    "udp": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(tuple(TARGET['tcp']))",
    "tcp v6": "socket.socket(socket.AF_INET6, socket.SOCK_STREAM).connect(('::1', 22))",
    "listen": "socket.create_server(('127.0.0.1', 0))",
    "abstract socket": "socket.socket(socket.AF_UNIX).connect('\\0' + TARGET['abstract'])",
    "path socket": (
        "held(*(lambda p=p: socket.socket(socket.AF_UNIX).connect(p) for p in TARGET['sockets']))"
    ),
    "datagram pair": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "a pair that connects anew": (
        "a, b = socket.socketpair()\na.connect('\\0' + TARGET['abstract'])"
    ),
    "the control socket connects anew": (
        "socket.socket(fileno=os.dup(3)).connect('\\0' + TARGET['abstract'])"
    ),
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)",
    "packets": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)",
    "raw": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "vsock": "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)",
    "kernel crypto": "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)",
    "bluetooth": "socket.socket(31, socket.SOCK_RAW, 1)",
    "bind": "a, b = socket.socketpair()\na.bind('\\0' + TARGET['abstract'] + 'x')",
}

_BUFFER = "ctypes.create_string_buffer(256)"
SYSTEM_CALLS = {
    "user namespace": "call('unshare', 0x10000000)",
    "mount namespace": "call('unshare', 0x20000)",
    "user and mount namespace": "in_child(lambda: call('unshare', 0x10020000))",
    "net namespace": "call('unshare', 0x40000000)",
    "pid namespace": "call('unshare', 0x20000000)",
    "clone into a namespace": "call('clone', 0x10000000 | 17, 0, 0, 0, 0)",
    "clone3": f"call('clone3', {_BUFFER}, 88)",
    "setns": "call('setns', os.open('.', os.O_RDONLY), 0)",
    "mount": "call('mount', b'none', b'.', b'tmpfs', 0, 0)",
    "bind mount": "call('mount', b'/', b'.', 0, 4096, 0)",
    "umount": "call('umount2', b'/tmp', 2)",
    "new mount interface": "call('fsopen', b'tmpfs', 0)",
    "open_tree": "call('open_tree', -100, b'/', 1)",
    "move_mount": "call('move_mount', -100, b'/', -100, b'.', 0)",
    "pivot_root": "call('pivot_root', b'.', b'.')",
    "chroot": "os.chroot('.')",
    "ptrace attach": "held(*(lambda p=p: call('ptrace', 16, p, 0, 0) for p in other_pids()))",
    "be traced": "call('ptrace', 0, 0, 0, 0)",
    "read memory": (
        f"b = {_BUFFER}\nv = struct.pack('QQ', ctypes.addressof(b), 8)\n"
        "held(*(lambda p=p: call('process_vm_readv', p, v, 1, v, 1, 0) for p in other_pids()))"
    ),
    "write memory": "call('process_vm_writev', 1, 0, 0, 0, 0, 0)",
    "take a descriptor": "call('pidfd_getfd', 3, 0, 0)",
    "compare processes": "call('kcmp', 1, 1, 0, 0, 0)",
    "bpf": f"call('bpf', 0, {_BUFFER}, 72)",
    "userfaultfd": "call('userfaultfd', 1)",
    "perf_event_open": f"call('perf_event_open', {_BUFFER}, 0, -1, -1, 0)",
    "io_uring": f"call('io_uring_setup', 4, {_BUFFER})",
    "asynchronous I/O": f"call('io_setup', 1, {_BUFFER})",
    "keyctl": "call('keyctl', 0, -3, 1)",
    "add_key": "call('add_key', b'user', b'x', b'x', 1, -3)",
    "request_key": "call('request_key', b'user', b'x', 0, -3)",
    "memfd": "os.memfd_create('x')",
    "secret memory": "call('memfd_secret', 0)",
    "memfd and execveat": (
        "f = os.memfd_create('x')\nos.write(f, open('/usr/bin/env', 'rb').read())\n"
        "call('execveat', f, b'', 0, 0, 0x1000)"
    ),
    "shared memory": "call('shmget', 0, 4096, 0o1600)",
    "message queue": "call('msgget', 0, 0o1600)",
    "semaphores": "call('semget', 0, 1, 0o1600)",
    "POSIX queue": "call('mq_open', b'x', 0o102, 0o600, 0)",
    "file by handle": f"call('open_by_handle_at', -100, {_BUFFER}, 0)",
    "handle of a file": f"call('name_to_handle_at', -100, b'.', {_BUFFER}, {_BUFFER}, 0)",
    "inotify": "call('inotify_init1', 0)",
    "fanotify": "call('fanotify_init', 0, 0)",
    "kernel module": "call('init_module', 0, 0, b'')",
    "kernel module by file": "call('finit_module', 0, b'', 0)",
    "new kernel": "call('kexec_load', 0, 0, 0, 0)",
    "kernel log": "call('syslog', 3, ctypes.create_string_buffer(64), 64)",
    "reboot": "call('reboot', 0xfee1dead, 672274793, 0, 0)",
    "host name": "call('sethostname', b'x', 1)",
    "clock": "time.clock_settime(time.CLOCK_REALTIME, 0)",
    "accounting": "call('acct', 0)",
    "quota": "call('quotactl', 0x80000100, 0, 0, 0)",
    "swap": "call('swapon', b'x', 0)",
    "memory for Landlock's rules": "call('landlock_create_ruleset', struct.pack('Q', 1), 8, 0)",
    "move pages": "call('move_pages', 1, 0, 0, 0, 0, 0)",
    "a lock of an open file": (
        "lock = struct.pack('hhqqi4x', 1, 0, 0, 1, 0)\n"
        "fcntl.fcntl(os.open('l', os.O_RDWR | os.O_CREAT), 37, lock)"
    ),
    "open files in common": "call('clone', 0x400 | 17, 0, 0, 0, 0) or os._exit(0)",
    "room of sockets": "socket.socketpair()[0].setsockopt(socket.SOL_SOCKET, 7, 1 << 20)",
    "memory for compiled filters": (
        "code = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0))\n"
        "filter = struct.pack('HxxxxxxQ', 1, ctypes.addressof(code))\n"
        "socket.socketpair()[0].setsockopt(socket.SOL_SOCKET, 26, filter)"
    ),
    "pages in common": (
        "held(lambda: call('prctl', 67, 1, 0, 0, 0),"
        " lambda: mmap.mmap(-1, 1 << 20).madvise(mmap.MADV_MERGEABLE))"
    ),
    "a handle of who made the socket": (
        "held(lambda: socket.socket(fileno=os.dup(3)).getsockopt(socket.SOL_SOCKET, 77, 4),"
        " lambda: socket.socket(fileno=os.dup(3)).setsockopt(socket.SOL_SOCKET, 76, 1))"
    ),
    "a core of its own": "call('prctl', 62, 1, 0, 0, 0)",
    "calls of newer kernels": """
for number in range(467, 600):
    libc.syscall(number, 0, 0, 0, 0, 0, 0)
    if ctypes.get_errno() != errno.ENOSYS:
        raise SystemExit(number)
raise PermissionError("none is there")
""",
}
if kernel.MACHINE == syscalls.X86_64:
    SYSTEM_CALLS |= {
        "ports": "call('iopl', 3)",
        "descriptor table": f"call('modify_ldt', 0, {_BUFFER}, 16)",
        # Each kills the process that tries.
        "x32 interface": "in_child(lambda: libc.syscall(ctypes.c_long(0x40000000 | 39)))",
        "32-bit interface": """
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20 (getpid); int 0x80; ret
address = ctypes.addressof(ctypes.c_char.from_buffer(code))
in_child(ctypes.CFUNCTYPE(ctypes.c_int)(address))
""",
    }

PRIVILEGES = {
    "become root": "os.setuid(0)",
    "become the root group": "os.setgid(0)",
    "become root for files": "os.setreuid(-1, 0)",
    "join groups": "os.setgroups([0])",
    "take capabilities": (
        "call('capset', struct.pack('II', 0x20080522, 0), struct.pack('6I', *[0xffffffff] * 6))"
    ),
    "ambient capability": "call('prctl', 47, 2, 21, 0, 0)",
    "undo no_new_privs": "call('prctl', 38, 0, 0, 0, 0)",
    "secure bits": "call('prctl', 28, 0, 0, 0, 0)",
    "own memory map": "call('prctl', 35, 1, 0, 0, 0)",
    "set-uid program": (
        "done = subprocess.run(['/bin/su', '-c', 'id -u'], capture_output=True, text=True)\n"
        "raise SystemExit(done.stdout) if done.stdout.strip() == '0' else PermissionError(done)"
    ),
    "set-uid copy": """
import shutil
shutil.copy("/usr/bin/id", "id")
os.chmod("id", 0o6755)
done = subprocess.run(["./id", "-u"], capture_output=True, text=True)
raise SystemExit("root") if done.stdout.strip() == "0" else PermissionError(done)
""",
    "better priority": "os.nice(-5)",
    "a scheduling group of its own": "in_child(os.setsid)",
    "take a priority back": "os.nice(5)\nos.setpriority(os.PRIO_PROCESS, 0, 4)",
    "real-time priority": "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))",
    "real-time I/O": "call('ioprio_set', 1, 0, 1 << 13)",
    "priority of others": (
        "held(*(lambda p=p: os.setpriority(os.PRIO_PROCESS, p, 19) for p in TARGET['pids']))"
    ),
    "limits of others": (
        "held(*(lambda p=p: call('prlimit64', p, 7, struct.pack('QQ', 0, 0), 0)"
        " for p in TARGET['pids']))"
    ),
    "spare me when memory is short": (
        "f = os.open('/proc/self/oom_score_adj', os.O_WRONLY)\nos.write(f, b'-1000')"
    ),
    "lock much memory": "m = mmap.mmap(-1, 1 << 20)\n"
    "if libc.mlock(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(m))), "
    "ctypes.c_size_t(1 << 20)): raise OSError(ctypes.get_errno(), 'refused')",
}
for _name in ("AS", "NPROC", "FSIZE", "NOFILE", "CORE", "MEMLOCK", "CPU"):
    PRIVILEGES[f"raise the limit {_name}"] = (
        f"which = resource.RLIMIT_{_name}\n"
        "most = resource.getrlimit(which)[1]\n"
        "call('prlimit64', 0, which, struct.pack('QQ', most + 1, most + 1), 0)"
    )
