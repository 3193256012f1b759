"""CPU time of a tree, of ended processes too, and memory."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time

from bench.measuring.usage import (
    cpu_of_ended,
    cpu_seconds,
    peak_beside,
    proportional_all,
    resident,
    thread_seconds,
    tree,
)

BURN = "import time\nwhile time.process_time() < 0.15: pass"
PARENT = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {BURN!r}])
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_child_that_ended_is_counted_with_its_parent() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        parent.stdout.readline()
        assert tree([parent.pid]) == [parent.pid]
        # The kernel shows what was reaped in ticks of 10 ms.
        assert cpu_seconds([parent.pid]) >= 0.15 - 0.02
        parent.stdin.close()


def test_own_time_is_finer_than_a_tick() -> None:
    before = cpu_seconds([os.getpid()])
    clock = time.process_time()
    while time.process_time() < clock + 0.002:
        pass
    used = cpu_seconds([os.getpid()]) - before
    assert used >= 0.002
    # No multiple of the tick, which is all that the counters in /proc can say.
    assert min(used % 0.01, 0.01 - used % 0.01) > 1e-7


def test_a_tree_has_its_root_and_all_below() -> None:
    code = "import subprocess; subprocess.run(['sh', '-c', 'echo ready; cat; true'])"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        found = tree([parent.pid])
        assert found[0] == parent.pid
        assert len(found) >= 2
        assert resident(found) > proportional_all(found) > 0
        assert parent.stdin is not None
        parent.stdin.close()


def test_a_process_that_is_gone_is_nothing() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert tree([gone.pid]) == []
    assert cpu_seconds([gone.pid]) == 0.0
    assert resident([gone.pid]) == 0


def test_the_main_threads_time_comes_first_and_others_follow_by_size() -> None:
    def burn(seconds: float) -> None:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass

    done = threading.Event()
    ready = threading.Barrier(3)

    def work(seconds: float) -> None:
        burn(seconds)
        ready.wait()
        done.wait()

    threads = [threading.Thread(target=work, args=(seconds,)) for seconds in (0.05, 0.2)]
    for thread in threads:
        thread.start()
    try:
        ready.wait()
        main, *others = thread_seconds(os.getpid())
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert main > 0
    assert others == sorted(others, reverse=True)
    assert others[0] >= 0.15
    assert thread_seconds(2**30) == []


async def test_memory_that_a_child_had_only_for_a_while_is_seen() -> None:
    code = "import time; x = bytearray(96 << 20); x[::4096] = x[::4096]; time.sleep(1.5); del x"

    async def work() -> str:
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
        await child.wait()
        return "done"

    before = cpu_of_ended()
    result, peak = await peak_beside(work())
    assert result == "done"
    assert cpu_of_ended() > before
    assert 96 << 20 < peak < 4 << 30  # a fork has its parent's pages for a moment
