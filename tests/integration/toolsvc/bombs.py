"""Foreign code that takes as much of something as it gets, and how it has to end."""

from tests.integration.toolsvc.bombs_of_files import FILES, Bomb
from toolsvc.sandbox.session import Ending

BOMBS = {
    **FILES,
    "processes": Bomb(
        code="""
children = []
try:
    while len(children) < 100:
        pid = os.fork()
        if pid == 0:
            time.sleep(30)
            os._exit(0)
        children.append(pid)
except BlockingIOError:
    pass
print("processes:", len(children) < 16)
for pid in children:
    os.kill(pid, 9)
""",
        endings={Ending.OK},
        says="processes: True",
    ),
    "threads": Bomb(
        code="""
threads = 0
try:
    while threads < 100:
        threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
        threads += 1
except RuntimeError:
    pass
print("threads:", threads < 16)
""",
        endings={Ending.OK},
        says="threads: True",
    ),
    "forks without end": Bomb(
        code="""
while True:
    try:
        os.fork()
    except OSError:
        pass
""",
        # On a busy machine the limit of time may come after that of memory.
        endings={Ending.TIMEOUT, Ending.OUT_OF_MEMORY},
        limit=0.3,
    ),
    "forks that lose their parents": Bomb(
        code="""
while True:
    try:
        if os.fork() == 0:
            os.setpgid(0, 0)
            if os.fork():
                os._exit(0)
    except OSError:
        pass
""",
        endings={Ending.TIMEOUT},
        limit=0.3,
    ),
    "computing": Bomb(
        # It ends when all of it, what did not compute included, has been told to give way.
        code="""
for _ in range(6):
    if os.fork() == 0:
        while True:
            pass
while os.getpriority(os.PRIO_PROCESS, 0) < 5:
    time.sleep(0.01)
print("lowered")
""",
        endings={Ending.OK},
        says="lowered",
        limit=10,
    ),
    "memory of one process": Bomb(
        code="bytearray(1 << 30)", endings={Ending.OUT_OF_MEMORY}, says="MemoryError"
    ),
    "memory of many processes": Bomb(
        code="""
for _ in range(4):
    if os.fork() == 0:
        block = bytearray(90 << 20)
        time.sleep(30)
        os._exit(0)
time.sleep(30)
""",
        endings={Ending.OUT_OF_MEMORY},
        says="192 MiB",
        limit=15,
    ),
    "memory shared by many processes": Bomb(
        code="""
blocks = []
for _ in range(4):
    if os.fork():
        time.sleep(30)
    shared = mmap.mmap(-1, 80 << 20)
    for at in range(0, 80 << 20, 4096):
        shared[at] = 1
    blocks.append(shared)
    # The address space of one process must not be what stops it.
    if len(blocks) > 1:
        blocks.pop(0)
time.sleep(30)
""",
        endings={Ending.OUT_OF_MEMORY},
        says="192 MiB",
        limit=15,
    ),
    "memory of programs": Bomb(
        code="""
hungry = "b = bytearray(90 << 20)\\nimport time\\ntime.sleep(30)"
for _ in range(4):
    subprocess.Popen(["/usr/bin/python3", "-I", "-c", hungry])
time.sleep(30)
""",
        endings={Ending.OUT_OF_MEMORY},
        says="192 MiB",
        limit=15,
    ),
    "memory of processes that hide": Bomb(
        code="""
for _ in range(4):
    if os.fork() == 0:
        call("prctl", 4, 0, 0, 0, 0)
        block = bytearray(90 << 20)
        time.sleep(30)
        os._exit(0)
time.sleep(30)
""",
        endings={Ending.OUT_OF_MEMORY},
        says="192 MiB",
        limit=15,
    ),
    "memory of orphans that hide": Bomb(
        code="""
call("prctl", 4, 0, 0, 0, 0)
for _ in range(4):
    if os.fork() == 0:
        os.setpgid(0, 0)
        if os.fork():
            os._exit(0)
        block = bytearray(90 << 20)
        time.sleep(30)
        os._exit(0)
time.sleep(30)
""",
        endings={Ending.OUT_OF_MEMORY},
        says="192 MiB",
        limit=15,
    ),
    "tables of pages": Bomb(
        # A page in each GiB, which takes two tables; what is read takes no page of its own.
        code="""
libc.mmap.restype = ctypes.c_void_p
if os.fork() == 0:
    for at in range(1, 60000):
        place = ctypes.c_void_p(at << 30)
        if libc.mmap(place, ctypes.c_size_t(4096), 1, 0x100022, -1, ctypes.c_long(0)) == at << 30:
            ctypes.string_at(place, 1)
time.sleep(30)
""",
        endings={Ending.OUT_OF_MEMORY},
        says="192 MiB",
        limit=15,
    ),
    "what waits in sockets": Bomb(
        code="""
while True:
    try:
        if os.fork() == 0:
            break
    except BlockingIOError:
        time.sleep(30)
held = []
try:
    while True:
        held += socket.socketpair()
        held[-1].setblocking(False)
        while True:
            try:
                held[-1].send(bytes(100000))
            except BlockingIOError:
                break
except OSError:
    time.sleep(30)
""",
        endings={Ending.OUT_OF_MEMORY},
        says="192 MiB",
        limit=15,
        alike=True,
    ),
    "locks": Bomb(
        code="""
for part in range(2):
    file = os.open(f"locked{part}", os.O_RDWR | os.O_CREAT)
    for at in range(1500):
        fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * at)
    if os.fork():
        time.sleep(30)
""",
        endings={Ending.LIMIT},
        says="2000 locks",
        limit=15,
        alike=True,
    ),
    "the machine's disks": Bomb(
        # The kernel would refuse these of a pipe; nothing gets as far as that.
        code="""
pipe = os.pipe()[1]
os.fsync(pipe)
os.fdatasync(pipe)
os.posix_fadvise(pipe, 0, 0, os.POSIX_FADV_DONTNEED)
print("left alone")
""",
        endings={Ending.OK},
        says="left alone",
        alike=True,
    ),
    "signals that wait": Bomb(
        code="""
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 1])
waiting = 0
while waiting < 20000 and libc.sigqueue(os.getpid(), signal.SIGRTMIN + 1, None) == 0:
    waiting += 1
print("waiting:", 0 < waiting <= 1024)
""",
        endings={Ending.OK},
        says="waiting: True",
    ),
    "deep recursion": Bomb(
        code="import sys\nsys.setrecursionlimit(10**9)\ndef f(): return f() + 1\nf()",
        endings={Ending.CRASHED, Ending.OUT_OF_MEMORY, Ending.TIMEOUT},
        limit=1,
    ),
    "a number without end": Bomb(
        code="x = 9 ** 9 ** 9", endings={Ending.TIMEOUT, Ending.OUT_OF_MEMORY}, limit=0.3
    ),
    "sleep": Bomb(code="time.sleep(600)", endings={Ending.TIMEOUT}, limit=0.2),
    "deaf to interrupts": Bomb(
        code="signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))\nwhile True: pass",
        endings={Ending.TIMEOUT},
        limit=0.2,
    ),
    "swallows interrupts": Bomb(
        code="""
while True:
    try:
        time.sleep(60)
    except BaseException:
        pass
""",
        endings={Ending.TIMEOUT},
        limit=0.2,
    ),
    "stops itself": Bomb(
        code="os.kill(os.getpid(), signal.SIGSTOP)\nwhile True: time.sleep(1)",
        endings={Ending.TIMEOUT, Ending.OK},
        limit=0.2,
    ),
    "abort, with a core dump": Bomb(
        code="if os.fork() == 0: os.abort()\nprint('dumped:', os.WCOREDUMP(os.wait()[1]))",
        endings={Ending.OK},
        says="dumped: False",
    ),
    "closes all files": Bomb(code="os.closerange(0, 64)", endings={Ending.CRASHED}),
    "hangs up and stays": Bomb(
        code="os.close(3)\nwhile True: time.sleep(1)", endings={Ending.CRASHED, Ending.TIMEOUT}
    ),
    "nonsense to the host": Bomb(
        code="os.write(3, b'nonsense')\ntime.sleep(30)",
        endings={Ending.CRASHED},
        says="out of turn",
    ),
    "an answer too early": Bomb(
        code="os.write(3, bytes([0, 3]) + bytes(17))\ntime.sleep(30)",
        endings={Ending.CRASHED},
        says="out of turn",
    ),
    "a forged answer": Bomb(
        # It ends the call that is its own: the second of the session.
        code="os.write(3, bytes([0]) + struct.pack('<BIBQ', 3, 2, 0, 1 << 60))\ntime.sleep(30)",
        endings={Ending.OK},
    ),
    "a message without end": Bomb(
        code="while True: os.write(3, bytes([1]) + bytes(1000))",
        endings={Ending.CRASHED},
        says="out of turn",
    ),
    "an oversized packet": Bomb(
        code="os.write(3, bytes([0]) + bytes(100000))\ntime.sleep(30)",
        endings={Ending.CRASHED},
        says="out of turn",
    ),
    "ready once more": Bomb(
        code="os.write(3, bytes([0, 2]))\ntime.sleep(30)",
        endings={Ending.CRASHED},
        says="out of turn",
    ),
    "descriptors for the host": Bomb(
        code="""
channel = socket.socket(fileno=os.dup(3))
while True:
    try:
        socket.send_fds(channel, [bytes([1]) + b"x"], [0, 1, 2])
    except OSError:
        pass  # as many as may be on their way, of all sessions of this account
""",
        endings={Ending.CRASHED},
        says="out of turn",
    ),
}
