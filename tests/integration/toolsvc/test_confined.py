"""The confined pool, with a parser that does its worst: what comes of it, and what it reaches."""

import asyncio
import os
import pwd
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from toolsvc.confined.errors import CannotStart, InputFailed, InputFault, PoolDown, PoolFull
from toolsvc.confined.pool import ConfinedPool, file_of
from toolsvc.sandbox.config import MIB, SandboxConfig

PARSER = "tests.support.hostile_parser"
SPIN = "while True: pass"
pytestmark = [pytest.mark.quick, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[ConfinedPool]:
    pool = ConfinedPool(PARSER, count=2, memory_bytes=256 * MIB)
    await pool.start()
    yield pool
    await pool.close()


async def run(
    pool: ConfinedPool,
    code: str,
    data: bytes = b"",
    seconds: float = 60,
    most: int = 1000,
    who: str = "a",
) -> bytes:
    async with pool.place(who, 60) as jobs:
        with file_of(data) as file:
            return await jobs.run(code, file, seconds=seconds, most=most)


def proc(process: psutil.Process, file: str) -> str:
    """What the kernel says of it."""
    return Path(f"/proc/{process.pid}/{file}").read_text(encoding="utf-8")


def nursery() -> psutil.Process:
    (found,) = [one for one in psutil.Process().children() if PARSER in one.cmdline()]
    return found


def nursery_of(pool: ConfinedPool) -> psutil.Process:
    assert pool._nursery is not None
    return psutil.Process(pool._nursery._process.pid)


async def in_it(until: Callable[..., Any]) -> psutil.Process:
    """The process of the one job that runs."""
    await until(lambda: len(nursery().children()) == 1)
    return nursery().children()[0]


async def test_a_parser_reads_its_file_and_answers(pool: ConfinedPool) -> None:
    assert await run(pool, "answer = file.read()[::-1]", b"abc") == b"cba"
    assert await run(pool, "answer = bytes(5 << 20)", most=5 << 20) == bytes(5 << 20)
    assert await run(pool, "") == b""


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("bytearray(1 << 30)", InputFault.MEMORY),
        ("b = []\nwhile True: b.append(bytes(1 << 20))", InputFault.MEMORY),
        ("ctypes.string_at(0)", InputFault.CRASH),
        ("os.abort()", InputFault.CRASH),
        ("os._exit(0)\n", None),
        ("os._exit(5)", InputFault.CRASH),
        ("os._exit(9)", InputFault.CRASH),
        ("raise SystemExit(0)", InputFault.BROKEN),
        ("raise KeyboardInterrupt", InputFault.BROKEN),
        ("1 / 0", InputFault.BROKEN),
        ("f = lambda: f()\nf()", InputFault.BROKEN),
        ("answer = 'no bytes'", InputFault.BROKEN),
        ("answer = bytes(1001)", InputFault.BROKEN),
        ("os.write(1, bytes(1001))\nos.write(1, b'x')", InputFault.BROKEN),
        ("os.kill(os.getpid(), signal.SIGKILL)", InputFault.BROKEN),
        ("os.closerange(0, 3)\nanswer = b'x'", InputFault.BROKEN),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass", InputFault.TIME),
    ],
)
async def test_whatever_an_input_does_is_its_own(
    pool: ConfinedPool, code: str, fault: InputFault | None
) -> None:
    """None of them is PoolDown, for which a caller would try again; and the next job is well."""
    seconds = 0.3 if fault is InputFault.TIME else 60
    if fault is None:
        assert await run(pool, code) == b""
        return
    with pytest.raises(InputFailed) as failed:
        await run(pool, code, seconds=seconds)
    assert failed.value.fault is fault
    assert await run(pool, "answer = b'well'") == b"well"


async def test_nothing_of_one_input_is_left_for_the_next(pool: ConfinedPool) -> None:
    """A decoder that was taken over told the next trajectory what it liked."""
    assert await run(pool, "kept.append(b'mine')\nanswer = kept[0]") == b"mine"
    assert await run(pool, "answer = b''.join(kept)") == b""


REACHES = [
    "os.open('/etc/passwd', os.O_RDONLY)",
    "os.open('.', os.O_RDONLY)",
    "os.stat('/etc/passwd')",
    "os.listdir('/proc/self/fd')",
    "os.readlink('/proc/self/exe')",
    "os.unlink('/tmp/there-is-no-such-file')",
    "os.chmod('/etc/passwd', 0)",
    "os.mkdir('/tmp/confined')",
    "socket.socket()",
    "socket.socket(socket.AF_UNIX)",
    "socket.socketpair()",
    "os.pipe()",
    "os.memfd_create('x')",
    "os.dup(0)",
    "os.ftruncate(0, 1 << 40)",
    "os.fchmod(0, 0o777)",
    "os.fork()",
    "os.execv('/bin/true', ['true'])",
    "os.posix_spawn('/bin/true', ['true'], {})",
    "import _thread\n_thread.start_new_thread(print, ())",
    "os.kill(PARENT, 0)",
    "os.kill(-1, 0)",
    "os.kill(os.getpid(), 0)",
    "resource.prlimit(PARENT, resource.RLIMIT_AS, (1, 1))",
    "resource.prlimit(PARENT, resource.RLIMIT_AS)",
    "resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))",
    "os.setpriority(os.PRIO_PROCESS, PARENT, 19)",
    "os.sched_setaffinity(PARENT, {0})",
    "os.pidfd_open(PARENT)",
    "os.setuid(0)",
    "os.setsid()",
]


async def test_a_job_reaches_nothing(pool: ConfinedPool) -> None:
    """Each of these raises; as root a taken-over decoder could `prlimit` every other process."""
    parent = nursery().pid
    blocks = [
        f"try:\n    exec({code.replace('PARENT', str(parent))!r})\n    done.append({code!r})\n"
        "except (OSError, RuntimeError, ValueError):\n    pass\n"
        for code in REACHES
    ]
    code = "done = []\n" + "".join(blocks) + "answer = repr(done).encode()"
    assert await run(pool, code, most=10_000) == b"[]"


async def test_a_job_s_process_is_not_root_and_has_nothing(
    pool: ConfinedPool, until: Callable[..., Any]
) -> None:
    job = asyncio.create_task(run(pool, SPIN, seconds=60))
    child = await in_it(until)
    await until(lambda: "Seccomp:\t2\n" in proc(child, "status"))
    status = proc(child, "status")
    limits = proc(child, "limits")
    assert "NoNewPrivs:\t1\n" in status
    assert f"CapEff:\t{0:016x}\n" in status
    uids = set(child.uids())
    assert 0 not in uids
    if os.geteuid() == 0:
        assert uids <= {
            pwd.getpwnam(name).pw_uid for name in ("games", "toolwright") if known(name)
        }
        assert "Groups:\t\n" in status.replace("Groups:\t \n", "Groups:\t\n")
        assert len(os.listdir(f"/proc/{child.pid}/fd")) == 3
        environment = proc(child, "environ")
        assert "TOKEN" not in environment
        assert "HOME" not in environment
    assert f"Max address space         {256 * MIB}" in limits
    assert "Max processes             0" in limits
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    await until(lambda: not nursery().children())


def known(name: str) -> bool:
    return any(entry.pw_name == name for entry in pwd.getpwall())


async def test_two_large_jobs_do_not_hold_what_small_ones_need(pool: ConfinedPool) -> None:
    """Two large crops held both decoders for as long as they liked."""
    large = [asyncio.create_task(run(pool, SPIN, who=str(one))) for one in range(2)]
    assert await run(pool, "answer = b'small'", who="c") == b"small"
    assert pool.figures()["confined_jobs_busy"] == 2
    for job in large:
        job.cancel()
    await asyncio.gather(*large, return_exceptions=True)


async def test_a_place_is_free_when_its_process_is_gone(
    pool: ConfinedPool, until: Callable[..., Any]
) -> None:
    job = asyncio.create_task(run(pool, SPIN))
    child = await in_it(until)
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    await until(lambda: not pool.figures()["confined_jobs_busy"])
    assert not child.is_running()


async def test_no_place_in_time_is_a_refusal(pool: ConfinedPool) -> None:
    async with pool.place("a", 1), pool.place("b", 1):
        with pytest.raises(PoolFull):
            async with pool.place("c", 0.05):
                pass


async def test_a_kill_from_outside_is_nobodys_and_a_lost_nursery_is_replaced(
    pool: ConfinedPool, until: Callable[..., Any]
) -> None:
    job = asyncio.create_task(run(pool, SPIN))
    (await in_it(until)).kill()
    with pytest.raises(PoolDown):
        await job
    before = nursery()
    job = asyncio.create_task(run(pool, SPIN))
    child = await in_it(until)
    before.kill()
    with pytest.raises(PoolDown):
        await job
    await until(lambda: not child.is_running())
    assert await run(pool, "answer = b'well'") == b"well"
    assert nursery() != before


async def test_a_nursery_that_does_not_answer_is_ended(
    pool: ConfinedPool, until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolsvc.confined.pool._KILL_SECONDS", 0.05)
    before = nursery()
    before.suspend()
    with pytest.raises(InputFailed):
        await run(pool, "", seconds=0.05)
    await until(lambda: not before.is_running())
    assert await run(pool, "answer = b'well'") == b"well"


async def test_what_cannot_work_says_so() -> None:
    with pytest.raises(CannotStart) as failed:
        await ConfinedPool("no_such_package.at_all", count=1, memory_bytes=256 * MIB).start()
    assert failed.value.missing == "no_such_package"
    if os.geteuid() == 0:
        root = SandboxConfig(user="root")
        with pytest.raises(CannotStart, match="must not run as root"):
            await ConfinedPool(PARSER, count=1, memory_bytes=256 * MIB, sandbox=root).start()


async def test_the_services_secrets_are_in_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages were parsed in a copy of the service, with the search API's key in its environment."""
    monkeypatch.setenv("SERPER_API_KEY", "secret-word")
    pool = ConfinedPool(PARSER, count=1, memory_bytes=256 * MIB)
    told = await run(pool, "answer = repr(dict(os.environ)).encode()", most=10_000)
    environment = proc(nursery_of(pool), "environ")
    await pool.close()
    assert b"PYTHONPATH" in told or "PYTHONPATH" not in os.environ
    assert "secret-word" not in f"{told!r}{environment}"


def test_the_service_imports_no_parser() -> None:
    code = (
        "import sys, toolsvc.tools.image.image_tool, toolsvc.tools.web_search.web_search_tool\n"
        "print({'lxml', 'trafilatura', 'PIL', 'av'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert found.stdout == "set()\n", found


async def test_walls_that_do_not_stand_are_seen_at_the_start() -> None:
    with pytest.raises(CannotStart, match="it can look at a path"):
        await ConfinedPool("tests.support.open_walls", count=1, memory_bytes=256 * MIB).start()


SERVICE = f"""
import asyncio
from toolsvc.confined.pool import ConfinedPool, file_of
async def main():
    pool = ConfinedPool({PARSER!r}, count=1, memory_bytes=256 << 20)
    await pool.start()
    async with pool.place("a", 1) as jobs:
        with file_of(b"") as file:
            print("running", flush=True)
            await jobs.run("while True: pass", file, seconds=600, most=10)
asyncio.run(main())
"""


async def test_no_process_outlives_the_service(until: Callable[..., Any]) -> None:
    service = subprocess.Popen(  # noqa: ASYNC220 - killed, not waited for
        [sys.executable, "-c", SERVICE], stdout=subprocess.PIPE
    )
    assert service.stdout is not None
    try:
        await asyncio.to_thread(service.stdout.readline)
        of_service = psutil.Process(service.pid)
        await until(lambda: len(of_service.children(recursive=True)) == 2)
        left = of_service.children(recursive=True)
    finally:
        service.kill()
        service.wait()
    await until(lambda: not any(one.is_running() for one in left))
