"""Does to a crowd what a plan says, and undoes it; what dies by itself is found out.

Invariants
- Whatever was harmed is whole again when `play` returns, also where it raises.
- An engine or a tool service that ends before it serves is started again, as a supervisor does.
  A process that ends by itself later fails the run.
"""

from __future__ import annotations

import os
import resource
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.chaos.conftest import kill, listens
from tests.chaos.crowd import Crowd
from tests.chaos.harm.plan import LINKED, Harm, Kind
from tests.chaos.harm.proxy import Mode
from tests.support.redis import RedisServer

PAGE = 4096
TICK_S = 0.05
END_S = 30.0
"""Longest time until a process serves, or has ended after SIGTERM, in seconds."""
STARTS = 10
"""Starts of a process that ends before it serves."""


class Harmed:
    """A crowd under harm. redis: the cache of its tool, if it has one."""

    def __init__(self, crowd: Crowd, redis: RedisServer | None = None) -> None:
        self._crowd = crowd
        self._redis = redis
        self._down: set[str] = set()
        self._starting: dict[str, int] = {}
        """Starts so far of each process that does not serve yet."""
        self._open: list[Harm] = []
        """Harms that are not undone."""

    def play(self, harms: tuple[Harm, ...]) -> None:
        """Returns when the last harm is undone, or the consumer is complete."""
        began = time.monotonic()
        todo: list[tuple[float, Callable[[Harm], None], Harm]] = []
        for harm in harms:
            todo += [(harm.at, self._begin, harm), (harm.at + harm.seconds, self._end, harm)]
        todo.sort(key=lambda one: one[0])
        try:
            for at, act, harm in todo:
                while time.monotonic() - began < at and not self._crowd.complete:
                    self.look()
                    time.sleep(TICK_S)
                if self._crowd.complete:
                    break
                act(harm)
        finally:
            for _, act, harm in todo:
                if act == self._end and harm in self._open:
                    self._end(harm)

    def settle(self) -> None:
        """Returns when every process serves."""
        deadline = time.monotonic() + END_S
        while self._starting:
            logs = self._crowd.run.logs()
            assert time.monotonic() < deadline, f"{[*self._starting]} do not serve\n{logs}"
            self.look()
            time.sleep(TICK_S)

    def look(self) -> None:
        """AssertionError if a process ended by itself. One that never served is started again."""
        crowd = self._crowd
        watched = {
            "tools": (crowd.tools, crowd.tools_port),
            **{one.name: (one.process, one.port) for one in crowd.samplers},
            "engine": (crowd.engine, crowd.engine_port),
        }
        for name, (process, port) in watched.items():
            if name in self._down or process is None:
                continue
            if name in self._starting and listens(port):
                del self._starting[name]
            if (code := process.poll()) is None:
                continue
            logs = crowd.run.logs()
            assert name in self._starting, f"the {name} ended by itself with {code}\n{logs}"
            assert self._starting[name] < STARTS, f"the {name} does not start\n{logs}"
            crowd.harm("start failed", name)
            if name == "engine":
                crowd.life_ended(killed=True)
            self._start_process(name)

    def _begin(self, harm: Harm) -> None:
        self._open.append(harm)
        self._crowd.harm(str(harm.kind), f"{harm.target} for {harm.seconds:.2f} s")
        kind, target = harm.kind, harm.target
        if kind in LINKED:
            self._crowd.links[target.removeprefix("link ")].set(Mode(kind.value))
        elif target == "redis":
            self._harm_redis(kind)
        elif kind is Kind.FULL:
            self._fill_disk()
        elif kind is Kind.CLOCK:
            self._shift_clock(harm.amount)
        elif kind is Kind.WORKER:
            self._kill_worker()
        elif kind is Kind.STOP:
            _signal(self._process(target), signal.SIGSTOP)
        else:
            self.look()
            self._down.add(target)
            self._end_process(target, kill_it=kind is Kind.KILL)

    def _end(self, harm: Harm) -> None:
        """Undoes a harm, once."""
        if harm not in self._open:
            return
        self._open.remove(harm)
        kind, target = harm.kind, harm.target
        if kind in LINKED:
            self._crowd.links[target.removeprefix("link ")].set(Mode.PASS)
        elif target == "redis":
            assert self._redis is not None
            if kind is Kind.KILL:
                self._redis.start()
            else:
                self._redis.go_on()
        elif kind is Kind.FULL:
            self._limit_files(resource.RLIM_INFINITY)
        elif kind is Kind.CLOCK:
            self._shift_clock(0.0)
        elif kind is Kind.STOP:
            _signal(self._process(target), signal.SIGCONT)
        elif kind in (Kind.KILL, Kind.TERM):
            self._start_process(target)
            self._down.discard(target)

    def _process(self, target: str) -> subprocess.Popen[bytes]:
        crowd = self._crowd
        named = {
            "engine": crowd.engine,
            "tools": crowd.tools,
            "consumer": crowd.consumer,
            **{one.name: one.process for one in crowd.samplers},
        }
        process = named[target]
        assert process is not None
        return process

    def _end_process(self, target: str, *, kill_it: bool) -> None:
        crowd, process = self._crowd, self._process(target)
        if kill_it:
            kill(process)
        else:
            process.send_signal(signal.SIGTERM)
            code = process.wait(END_S)
            fine = code == 0 or target in self._starting
            assert fine, f"the {target} ended with {code} at SIGTERM\n{crowd.run.logs()}"
        if target == "engine":
            crowd.kills += 1
            crowd.life_ended(killed=kill_it)
        if target == "tools":
            crowd.tools_ended()

    def _start_process(self, target: str) -> None:
        crowd = self._crowd
        match target:
            case "engine":
                crowd.start_engine(wait=False)
                self._fill_disk()
            case "tools":
                crowd.start_tools(wait=False)
            case "consumer":
                crowd.start_consumer()
            case _:
                crowd.start_sampler(int(target.removeprefix("sampler")), wait=False)
        if target != "consumer":
            self._starting[target] = self._starting.get(target, 0) + 1

    def _harm_redis(self, kind: Kind) -> None:
        assert self._redis is not None
        if kind is Kind.KILL:
            self._redis.stop()
        else:
            self._redis.pause()

    def _fill_disk(self) -> None:
        """No file of the engine's grows any more, while its disk is to be full."""
        if any(harm.kind is Kind.FULL for harm in self._open):
            self._limit_files(PAGE)

    def _limit_files(self, size: int) -> None:
        engine = self._process("engine")
        with suppress(ProcessLookupError):
            resource.prlimit(engine.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def _shift_clock(self, seconds: float) -> None:
        with self._crowd.clock.open("r+b") as file:
            file.write(struct.pack("<d", seconds))

    def _kill_worker(self) -> None:
        """One child of the tool service that serves; the service has one from its start on."""
        tools = self._process("tools")
        children = Path(f"/proc/{tools.pid}/task/{tools.pid}/children").read_text(encoding="utf-8")
        workers = [
            int(pid) for pid in children.split()
            if b"toolsvc" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]  # fmt: skip
        if workers:
            with suppress(ProcessLookupError):
                os.kill(workers[0], signal.SIGKILL)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
