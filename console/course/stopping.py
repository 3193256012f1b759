"""`toolwright stop` and what `toolwright status` asks of others: a run's console, its engine.

A run folder may come from a stranger. Invariants
- A process is signalled only if it is the course's last start and has this folder's lock file open.
  Pid, creation time, machine, boot and pid namespace identify it.
- The engine is queried or drained only on this machine, or at an address that the user typed.
- Another run's engine at that address is left alone. A drained engine goes on serving, since
  another program started it and ends it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration

from console.course import lock
from console.course.state import State, state_of
from console.errors import ConsoleError
from console.machine import pids
from console.machine.processes import alive
from console.machine.signals import TOGETHER_S
from console.record.course import Began, read_course
from console.record.resolved import read_resolved
from console.record.run import check_run, read_run
from console.watch import engine
from toolwright.rollout.v1 import rollout_pb2 as rollout
from toolwright.rollout.v1 import rollout_pb2_grpc
from toolwright.rpc.channel import open_channel
from toolwright.rpc.options import TOKEN_VARIABLE

INTERVAL_S = 0.2
TELL_S = 10.0
"""Between two lines about what a run that is stopping still does."""
DRAIN_S = 60.0


def state(run: Path, engine_at: str = "") -> State:
    """engine_at: an address that the user typed, in place of the folder's. Raises RecordBroken if
    the folder is not a run's."""
    files = read_run(run)
    says = asyncio.run(engine.ask_of(run, files.resolved, engine_at))
    found = state_of(
        files,
        here=pids.is_here(files.course),
        lives=pids.lives_in(files.course),
        answers=says is not None,
    )
    doubt = engine.not_asked(files.resolved, engine_at)
    return replace(found, doubts=(*found.doubts, doubt)) if doubt else found


def stop(run: Path, say: Callable[[str], None], *, now: bool, engine_at: str = "") -> str:
    """Returns a sentence once the run is over. now: its processes get no time. engine_at: an
    address that the user typed, in place of the folder's. Raises ConsoleError if nothing may or can
    be stopped."""
    check_run(run)
    course = read_course(run)
    start = course.starts[-1] if course.starts else None
    if start is None or course.ended is not None:
        return _drain(run, say, engine_at)
    here = pids.lives(start)
    if here is None:
        raise ConsoleError(
            f"{run} is a run of {start.host or 'an unknown machine'}, or of a container there: say "
            f"`toolwright stop {run}` where it was started"
        )
    if not here:
        raise ConsoleError(
            f"toolwright run of {run} was killed and nothing of it has to be stopped: the same "
            "command goes on with it, and first ends what it left"
        )
    if not pids.has_open(start.pid, run / lock.FILE):
        raise ConsoleError(
            f"process {start.pid}, which {run} names, is not its `toolwright run`: it does not "
            f"hold {run / lock.FILE}. Nothing was stopped"
        )
    _tell(start)
    said = told = time.monotonic()
    while alive(start.pid, start.created):
        if now and time.monotonic() - told > TOGETHER_S + INTERVAL_S:
            now = False
            if read_course(run).ended is None:  # else it is on its way out
                _tell(start)
        if time.monotonic() - said > TELL_S:
            said = time.monotonic()
            say(f"still stopping: {', '.join(_still(run)) or 'its last words'}; --now ends it")
        time.sleep(INTERVAL_S)
    ended = read_course(run).ended
    return f"{run}: {ended.sentence}" if ended else f"{run} is stopped"


def _tell(start: Began) -> None:
    try:
        os.kill(start.pid, signal.SIGTERM)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise ConsoleError(
            f"toolwright run (process {start.pid}) is another user's: ask that user, or "
            "stop it as that user"
        ) from error


def _drain(run: Path, say: Callable[[str], None], engine_at: str) -> str:
    resolved = read_resolved(run)
    if sentence := engine.not_asked(resolved, engine_at):
        raise ConsoleError(f"{run} is not stopped: {sentence}")
    address = engine.address_of(resolved, engine_at)
    if asyncio.run(engine.ask_of(run, resolved, engine_at)) is None:
        return f"{run} does not run"
    say(f"no toolwright run works there; the engine at {address} is told to admit nothing more")
    unfinished = asyncio.run(_drained(address))
    return (
        f"the engine at {address} is drained, {unfinished} trajectories are unfinished; it serves "
        "on until the program that started it ends it, and so does its learner"
    )


async def _drained(address: str) -> int:
    request = rollout.DrainRequest(deadline=Duration(seconds=int(DRAIN_S)))
    async with open_channel(address, os.environ.get(TOKEN_VARIABLE, "")) as channel:
        stub = rollout_pb2_grpc.RolloutServiceStub(channel)
        try:
            answer = await stub.Drain(request, timeout=DRAIN_S + 30.0)
        except grpc.aio.AioRpcError as error:
            raise ConsoleError(
                f"the engine at {address} was not drained: {error.details() or error.code().name}"
            ) from error
    return int(answer.unfinished)


def _still(run: Path) -> list[str]:
    """Names of the run's processes that live."""
    return [
        process.name
        for process in read_course(run).processes
        if process.state == "started" and alive(process.pid, process.created)
    ]
