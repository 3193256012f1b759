"""Foreign code that takes as much of files and output as it gets, and how it has to end."""

from dataclasses import dataclass

from toolsvc.sandbox.session import Ending


@dataclass(frozen=True, kw_only=True)
class Bomb:
    """Code that takes as much of something as it gets. Every text gives up by itself at a size
    that a small machine survives."""

    code: str
    endings: set[Ending]
    says: str = ""
    """What the output or the reason holds, if the ending does not tell enough."""
    limit: float = 4.0
    alike: bool = False
    """Held by what is the same behind every wall, so it is tried behind two."""


_OF_FILES = {Ending.LIMIT, Ending.EXCEPTION}
"""Ended by the watch, or told by the kernel that there is no space."""
FILES = {
    "a large file": Bomb(
        code="""
with open("big", "wb") as file:
    for _ in range(16):
        file.write(bytes(1 << 20))
        file.flush()
""",
        endings={Ending.EXCEPTION},
        says="File too large",
    ),
    "a sparse file": Bomb(
        code="os.truncate(os.open('big', os.O_RDWR | os.O_CREAT), 1 << 40)",
        endings={Ending.EXCEPTION},
        says="File too large",
    ),
    "many sparse files made full by mapping them": Bomb(
        code="""
for number in range(8):
    file = os.open(f"sparse{number}", os.O_RDWR | os.O_CREAT)
    os.truncate(file, 3 << 20)
    with mmap.mmap(file, 3 << 20) as mapped:
        for at in range(0, 3 << 20, 4096):
            mapped[at] = 1
    os.close(file)
time.sleep(30)
""",
        # Where the file system is full, a touch of the mapping is a bus error.
        endings={Ending.LIMIT, Ending.CRASHED},
        limit=15,
    ),
    "many files": Bomb(
        code="""
for number in range(6):
    with open(f"part{number}", "wb") as file:
        file.write(bytes(2 << 20))
time.sleep(30)
""",
        endings=_OF_FILES,
        limit=15,
    ),
    "many empty files": Bomb(
        code="""
for number in range(20000):
    os.close(os.open(str(number), os.O_CREAT))
time.sleep(30)
""",
        endings=_OF_FILES,
        limit=15,
    ),
    "many folders": Bomb(
        code="""
for number in range(20000):
    os.mkdir(str(number))
time.sleep(30)
""",
        endings=_OF_FILES,
        limit=15,
    ),
    "folders in folders": Bomb(
        code="""
try:
    for number in range(20000):
        os.mkdir("d")
        os.chdir("d")
finally:
    print("stopped at", number)
time.sleep(30)
""",
        # Making one takes longer the deeper it lies, so time may be what ends it.
        endings={*_OF_FILES, Ending.TIMEOUT},
        limit=3,
    ),
    "files that nothing names": Bomb(
        code="""
held = []
for number in range(6):
    held.append(os.open("gone", os.O_RDWR | os.O_CREAT))
    os.unlink("gone")
    os.write(held[-1], bytes(2 << 20))
time.sleep(30)
""",
        endings=_OF_FILES,
        limit=15,
    ),
    "the output file grown": Bomb(
        code="os.posix_fallocate(1, 0, 1 << 30)", endings={Ending.EXCEPTION}, says="too large"
    ),
    "/tmp and /dev/shm": Bomb(
        code="""
stored = 0
for folder in ("/tmp", "/dev/shm", "/var/tmp", "/dev", "/", "/run"):
    for number in range(6):
        try:
            with open(f"{folder}/fill{number}", "wb") as file:
                file.write(bytes(2 << 20))
                stored += 2
        except OSError:
            pass
if stored > 0:
    time.sleep(30)
raise PermissionError("nowhere")
""",
        endings=_OF_FILES,
        limit=15,
    ),
    "output": Bomb(
        code="for _ in range(3000): print('x' * 1000)\nprint('end')", endings={Ending.OK}
    ),
    "output of a child": Bomb(
        code="os.system('yes | head -c 300000000')", endings={Ending.OK}, limit=10
    ),
    "output of many children": Bomb(
        code="for _ in range(8): subprocess.Popen(['yes'])\ntime.sleep(30)",
        endings={Ending.TIMEOUT},
        limit=0.5,
    ),
    "open files": Bomb(
        code="held = [os.open('.', os.O_RDONLY) for _ in range(1000)]",
        endings={Ending.EXCEPTION},
        says="Too many open files",
    ),
    "pipes": Bomb(
        code="""
pipes = []
try:
    while len(pipes) < 1000:
        pipes.append(os.pipe())
        fcntl.fcntl(pipes[-1][1], fcntl.F_SETPIPE_SZ, 1 << 24)
except OSError as error:
    print("pipes:", len(pipes) < 32)
""",
        endings={Ending.OK},
        says="pipes: True",
    ),
    "attributes without end": Bomb(
        code="""
for number in range(4096):
    for file in (1, "."):
        try:
            os.setxattr(file, f"user.{number}", bytes(60000))
        except OSError:
            print("refused:", number)
            raise
""",
        endings={Ending.EXCEPTION},
        says="refused: 0",
    ),
    "seals on the output file": Bomb(
        code="fcntl.fcntl(1, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)",
        endings={Ending.EXCEPTION},
        says="PermissionError",
    ),
    "leases and locks on the output file": Bomb(
        code="""
for attempt in (
    lambda: fcntl.fcntl(1, fcntl.F_SETLEASE, fcntl.F_WRLCK),
    lambda: fcntl.flock(1, fcntl.LOCK_EX),
    lambda: fcntl.lockf(1, fcntl.LOCK_EX),
    lambda: fcntl.fcntl(1, fcntl.F_SETFL, 0),
    lambda: os.lseek(1, 1 << 20, os.SEEK_SET),
):
    try:
        attempt()
    except OSError:
        pass
""",
        endings={Ending.OK},
    ),
}
