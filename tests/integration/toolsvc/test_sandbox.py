"""Foreign code in real jails, at each level of isolation that this kernel can give."""

import asyncio
import textwrap

import psutil
import pytest
import pytest_asyncio

from tests.support.waiting import passes
from toolsvc.sandbox.sandbox import Sandbox
from toolsvc.sandbox.session import Ending, Outcome, SandboxSession

pytestmark = [pytest.mark.quick, pytest.mark.asyncio(loop_scope="module")]

KEEP = 16 * 1024


async def run(session: SandboxSession, code: str, limit: float = 10.0) -> Outcome:
    return await session.run(textwrap.dedent(code), limit=limit, keep=KEEP)


async def output(session: SandboxSession, code: str) -> str:
    outcome = await run(session, code)
    assert outcome.ending is Ending.OK, outcome
    return outcome.output.strip()


@pytest_asyncio.fixture(loop_scope="module")
async def session(sandbox: Sandbox):
    taken = await sandbox.take()
    yield taken
    taken.close()


async def test_state_lives_from_call_to_call(session: SandboxSession) -> None:
    assert await output(session, "import math\nx = 20\nx + 1") == "21"
    assert await output(session, "def f(n): return n * x\nprint(f(2))") == "40"
    assert await output(session, "open('note', 'w').write('kept')\nmath.floor(2.5)") == "2"
    assert await output(session, "open('note').read()") == "'kept'"
    assert await output(session, "x = None\nx") == ""


async def test_errors_are_told_with_their_lines(session: SandboxSession) -> None:
    outcome = await run(session, "y = 1\ny / 0")
    assert outcome.ending is Ending.EXCEPTION
    assert "ZeroDivisionError" in outcome.output
    assert "y / 0" in outcome.output
    assert "jailed" not in outcome.output
    outcome = await run(session, "import sys\nprint('a')\nsys.exit('b')")
    assert outcome.ending is Ending.EXCEPTION
    assert outcome.output == "a\nSystemExit: b\n"
    assert await output(session, "y") == "1"


async def test_programs_write_into_the_same_output(session: SandboxSession) -> None:
    code = """
        import subprocess, os
        print("one")
        subprocess.run(["echo", "two"])
        if os.fork() == 0:
            print("three")
        else:
            os.wait()
            print("four")
    """
    assert await output(session, code) == "one\ntwo\nthree\nfour"


async def test_an_interrupt_at_the_limit_keeps_the_state(session: SandboxSession) -> None:
    await run(session, "kept = 1")
    for code in (
        "while True: pass",
        "import time; time.sleep(60)",
        "import os; os.system('sleep 60')",
        "print('before', flush=True)\nwhile True: pass",
    ):
        outcome = await run(session, code, limit=0.2)
        assert outcome.ending is Ending.TIMEOUT
        assert not outcome.lost
        assert 0.15 < outcome.run_seconds < 1.2
    assert outcome.output == "before\n"
    assert await output(session, "kept") == "1"


async def test_code_that_will_not_stop_is_killed_and_said_to_be_lost(
    session: SandboxSession,
) -> None:
    code = """
        import time
        print("printed before the kill", flush=True)
        while True:
            try:
                time.sleep(60)
            except KeyboardInterrupt:
                pass
    """
    outcome = await run(session, code, limit=0.2)
    assert outcome.ending is Ending.TIMEOUT
    assert outcome.lost
    assert outcome.output == "printed before the kill\n"
    assert outcome.run_seconds < 3
    assert session.gone is not None


async def test_cancelling_stops_the_call_and_keeps_the_state(session: SandboxSession) -> None:
    await run(session, "kept = 1")
    call = asyncio.create_task(run(session, "while True: pass"))
    await passes(0.1, "the call runs")
    assert session.cancel()
    outcome = await call
    assert outcome.ending is Ending.CANCELLED
    assert not outcome.lost
    assert await output(session, "kept") == "1"
    assert not session.cancel()


async def test_all_files_together_are_bounded(session: SandboxSession) -> None:
    code = """
        for number in range(6):
            with open(f"part{number}", "wb") as file:
                file.write(bytes(2 << 20))
        import time
        time.sleep(30)
    """
    outcome = await run(session, code, limit=15)
    if outcome.ending is Ending.EXCEPTION:  # held by the kernel
        assert "No space left" in outcome.output
    else:  # held by the watch
        assert outcome.ending is Ending.LIMIT
        assert outcome.lost
        assert "6 MiB" in outcome.reason


async def test_the_environment_holds_nothing_of_the_service(
    session: SandboxSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    names = await output(session, "import os; print(*sorted(os.environ))")
    assert "API_KEY" not in names
    assert set(names.split()) <= {
        *("HOME", "TMPDIR", "PATH", "LANG", "LC_CTYPE"),
        *("PYTHONDONTWRITEBYTECODE", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    }


def is_jailed_python(process: psutil.Process) -> bool:
    """Other tests of this worker may have left a Python of their own."""
    try:
        jailed = any(one.name() in ("firejail", "bwrap") for one in process.parents())
        return jailed and "python" in process.name()
    except psutil.NoSuchProcess:
        return False


async def test_nothing_survives_its_session(sandbox: Sandbox) -> None:
    session = await sandbox.take()
    await output(session, "open('left', 'w').write('behind')")
    daemon = """
        import os, time
        if os.fork() == 0:
            os.setpgid(0, 0)
            if os.fork() == 0:
                while True: time.sleep(0.01)
            os._exit(0)
    """
    await output(session, daemon)
    below = psutil.Process().children(recursive=True)
    living = [process for process in below if is_jailed_python(process)]
    staying = 3 if sandbox.level.shared_jail else 2
    session.close()
    for _ in range(100):
        await asyncio.sleep(0.05)
        left = [process for process in living if process.is_running()]
        # The zygote of a shared jail and its forker stay, and so does a session that is ready.
        if len(left) <= staying:
            break
    assert len(left) <= staying, left


async def test_long_code_and_odd_text_arrive_whole(session: SandboxSession) -> None:
    code = "text = '''" + "äöü€😀 line\n" * 20000 + "'''\nprint(len(text))"
    assert await output(session, code) == str(len("äöü€😀 line\n") * 20000)
    assert await output(session, "print('\\ud800')") == "\\ud800"


LOCKS_ITSELF_OUT = """
import os
os.makedirs("a/b")
for path in ("a/b", "a", os.path.dirname(os.getcwd()), os.getcwd()):
    try:
        os.chmod(path, 0)
    except OSError:
        pass
"""


async def test_what_a_session_does_to_its_folders_is_nothing_to_others(sandbox: Sandbox) -> None:
    victim = await sandbox.take()
    kept = "import os\nos.path.exists(os.getcwd() + '/kept')"
    await output(victim, "open('kept', 'w').close()")
    for _ in range(3):
        session = await sandbox.take()
        await output(session, LOCKS_ITSELF_OUT)
        assert await output(victim, kept) == "True"
        session.close()
    assert await output(victim, kept) == "True"
    victim.close()


async def test_no_session_holds_a_file_that_another_has_open(sandbox: Sandbox) -> None:
    one, other = await sandbox.take(), await sandbox.take()
    flags = "import os\n[os.get_blocking(number) for number in range(4)]"
    before = await output(other, flags)
    code = "import os\nfor number in range(3): os.set_blocking(number, False)"
    await output(one, code)
    assert await output(other, flags) == before == "[True, True, True, True]"
    one.close()
    other.close()


HOG = """
import os, resource, signal, socket, ctypes
libc = ctypes.CDLL(None)
kept, signals, pairs = [], 0, []
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 1])
while signals < 100000 and libc.sigqueue(os.getpid(), signal.SIGRTMIN + 1, None) == 0:
    signals += 1
one, other = socket.socketpair()
sent = 0
try:
    while sent < 10000:
        socket.send_fds(one, [b"x"], [0] * 50)
        sent += 50
except OSError:
    pass
for _ in range(12):
    if os.fork() == 0:
        one.close(), other.close()
        held = []
        try:
            while True:
                held.append(os.pipe())
        except OSError:
            pass
        for _, end in held:
            os.set_blocking(end, False)
            os.write(end, bytes(1 << 16))
        signal.pause()
signals, sent
"""
LIVES = """
import os, signal, subprocess, threading, time
signal.setitimer(signal.ITIMER_REAL, 100)
ticks = []
timer = threading.Timer(0.001, ticks.append, [1])
timer.start(); timer.join()
read, write = os.pipe()
written = os.write(write, bytes(4096))
said = subprocess.run(["echo", "on"], capture_output=True, text=True).stdout
said, written, ticks
"""


async def test_what_is_counted_for_an_account_is_not_one_sessions_to_use_up(
    sandbox: Sandbox,
) -> None:
    hog = await sandbox.take()
    signals, sent = eval(await output(hog, HOG))
    assert 0 < signals <= 1024
    assert 0 < sent <= 64 + 253
    others = [await sandbox.take() for _ in range(2)]
    for other in others:
        assert await output(other, LIVES) == "('on\\n', 4096, [1])"
        other.close()
    hog.close()
