"""The course of a run: what is started, awaited and stopped, in which order.

    what is missing is made -> the recipe is checked -> services, samplers |-> engine, learner
                                                        warm-up            |   -> last evaluation
                                                                               -> all is stopped

Servers start beside the warm-up, with the weights that it begins with: the engine brings them to
the policy's. However it ends, what was started is stopped in the reverse order, while the view goes
on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from console.asked import needs
from console.asked.plan import Maker
from console.asked.ports import address_of
from console.asked.settings import made_from
from console.asked.setup import Setup
from console.config import Service
from console.course.commands import Commands
from console.course.lock import Held
from console.course.look import Missing
from console.course.made import making
from console.course.notes import Notes
from console.errors import ConsoleError, ImitationEnded, NothingStarted, NotReady, ProcessFailed
from console.machine.memory import MemoryMeter
from console.machine.processes import Command, Processes, Running
from console.machine.ready import until_serves
from console.watch.engine import ask
from console.watch.follow import follow
from console.watch.status import Status

ENGINE_START_S = 1800.0
"""It brings every sampler to its weights, which takes minutes where they are large."""
LAST_EVALUATION_S = 6 * 3600.0
RESTARTS = 1
"""Restarts of a server within an hour: any server may be killed, and one that always dies must
not be started for ever."""
FAILED_GRACE_S = 30.0
"""Grace of processes that stop because another one failed: their peers may never answer."""
TOLD = (3, 4, 5)
"""Exit codes of a learner that say more than that it failed: diverged, nothing to learn from, the
run is another's."""
STATUS_S = 10.0
"""For one answer of the engine: its loop may be late during a large evaluation."""
LOOK_S = 1.0
"""Between two looks for the run folder, and at the last evaluation."""
AWAY_S = 600.0
"""An engine that is started again reads its journal and brings every sampler to its weights."""
GROWN = 1.02
"""A peak of memory that is noted again."""


AFTER_WARM_UP = frozenset({"ingress"})
"""Services that read the policy's folder, since the warm-up may have to make it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the training ended: an exit code, and a sentence."""

    status: int
    sentence: str


class Course:
    """One start of a run; `run` returns how it ended."""

    def __init__(
        self,
        setup: Setup,
        missing: Missing,
        makers: tuple[Maker, ...],
        held: Held,
        processes: Processes,
        notes: Notes,
        status: Status,
    ) -> None:
        self._setup = setup
        self._missing = missing
        self._makers = makers
        self._held = held
        self._processes = processes
        self._notes = notes
        self._status = status
        self._commands = Commands(setup)
        self._memory = MemoryMeter()
        self._services_ready = asyncio.Event()

    async def run(self) -> Ending:
        """ConsoleError when a process fails, or the recipe is refused. No process is left."""
        async with (
            _beside(self._memory.run()),
            _beside(self._note_memory()),
            _beside(follow(self._setup.run, self._status, self._engine_address())),
        ):
            try:
                return await self._processes.while_alive(self._while_there(self._train()))
            except ConsoleError as error:
                if self._held.is_gone():
                    self._processes.hurry()  # there is nothing left to write to
                    raise _removed(self._setup.run) from error
                self._processes.limit_grace(FAILED_GRACE_S)
                raise
            finally:
                self._notes.stage("stop", "stopping every process")
                await asyncio.shield(self._processes.stop_all())

    def _engine_address(self) -> str:
        """As the recipe says it; "" if the engine chooses its port."""
        address = self._setup.recipe.shared.run.engine
        return "" if address.endswith(":0") else address

    async def _while_there(self, work: Coroutine[Any, Any, Ending]) -> Ending:
        """The result of `work`. Raises ConsoleError soon after the run folder is removed."""
        task, gone = asyncio.create_task(work), asyncio.create_task(self._gone())
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise _removed(self._setup.run)
        finally:
            for one in (task, gone):
                one.cancel()
            await asyncio.gather(task, gone, return_exceptions=True)

    async def _gone(self) -> None:
        while not await asyncio.to_thread(self._held.is_gone):  # noqa: ASYNC110 - a folder sends no events
            await asyncio.sleep(LOOK_S)

    async def _train(self) -> Ending:
        for name, address in self._missing.found:
            self._notes.found(name, "answered already", address)
        first = tuple(takewhile(lambda maker: maker.kind == "prepare", self._makers))
        for maker in first:
            await self._make(maker)
        await self._check()
        self._notes.stage("servers", "starting the servers")
        await _together(self._servers(), self._warm_up(self._makers[len(first) :]))
        late = (one for one in self._missing.services if one.name in AFTER_WARM_UP)
        await _together(*(self._service(one) for one in late))
        ending = await self._learn()
        if ending.status == 0:
            self._notes.stage("evaluate", "evaluating the last version")
            await self._evaluated()
        return ending

    async def _make(self, maker: Maker) -> None:
        words = {
            "prepare": f"making {maker.name}",
            "render": "rendering the conversations",
            "sft": "warm-up: imitation of the conversations",
        }
        self._notes.stage(maker.name, words[maker.kind])
        self._notes.about(maker.name, f"makes {maker.makes}")
        with making(self._setup.run, maker, made_from(self._setup, maker)):
            try:
                await self._processes.run(self._commands.maker(maker))
            except ProcessFailed as failed:
                sentence = failed.sentence("learner")
                if maker.kind == "sft" and failed.exit_code in TOLD and sentence:
                    raise ImitationEnded(sentence, status=failed.exit_code) from failed
                raise
            if not maker.makes.exists():
                raise NothingStarted(
                    f"{maker.where} has run and {maker.makes} is not there: let its command write "
                    "it, or correct the path"
                )

    async def _check(self) -> None:
        """NothingStarted with what `engine check` says."""
        self._notes.stage("check", "checking the recipe")
        self._notes.about("check", "reads the recipe, its sources and its reward")
        try:
            done = await self._processes.run(self._commands.check(self._model()))
        except ProcessFailed as failed:
            sentence = failed.sentence("engine")
            if failed.exit_code == 1 and sentence:
                raise NothingStarted(sentence) from failed
            raise
        for line in done.said:
            if line.startswith("warning: "):
                self._notes.say(line)

    async def _warm_up(self, makers: tuple[Maker, ...]) -> None:
        asks = bool(self._setup.recipe.raw.get("render", {}).get("ask_tools", False))
        for maker in makers:
            if maker.kind == "render" and asks:
                await self._services_ready.wait()
            await self._make(maker)

    async def _servers(self) -> None:
        missing = self._missing
        model = self._model()

        async def services() -> None:
            first = (one for one in missing.services if one.name not in AFTER_WARM_UP)
            await _together(*(self._service(one) for one in first))
            self._services_ready.set()

        await _together(
            services(),
            *(self._sampler(name, model, url) for name, url in missing.samplers.items()),
        )

    async def _service(self, service: Service) -> None:
        self._notes.about(service.name, "a server of the recipe's", address_of(service.ready))
        running = await self._start(self._commands.service(service))
        await self._processes.until_ready(running, until_serves(service.ready), service.start_s)

    async def _sampler(self, name: str, model: Path, url: str) -> None:
        self._notes.about(name, "SGLang: streams tokens", url)
        running = await self._start(self._commands.sampler(name, model, url))
        seconds = self._setup.table.sampler.start_s
        await self._processes.until_ready(running, until_serves(f"{url}/health"), seconds)

    async def _learn(self) -> Ending:
        """Trains to the end. The learner starts beside the engine, for which it waits."""
        self._notes.stage("learn", "reinforcement learning")
        engine = asyncio.create_task(self._engine())
        self._notes.about("learner", "Megatron: trains, publishes weights")
        learner = asyncio.create_task(self._processes.run(self._commands.learner()))
        try:
            await asyncio.wait({engine, learner}, return_when=asyncio.FIRST_EXCEPTION)
            if engine.done():
                engine.result()
            await learner
        except ProcessFailed as failed:
            sentence = failed.sentence("learner")
            if failed.exit_code in TOLD and sentence:
                return Ending(status=failed.exit_code, sentence=sentence)
            raise
        finally:
            for task in (engine, learner):
                task.cancel()
            await asyncio.gather(engine, learner, return_exceptions=True)
        return Ending(status=0, sentence=f"the policy is in {self._setup.run / 'final'}")

    async def _engine(self) -> None:
        if not self._missing.engine:
            return
        address = self._setup.recipe.shared.run.engine
        self._notes.about("engine", "rolls out, calls tools, scores", address)
        running = await self._start(self._commands.engine())
        await self._processes.until_ready(running, until_serves(f"grpc:{address}"), ENGINE_START_S)

    async def _evaluated(self) -> None:
        """Until the engine has evaluated the last version."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_EVALUATION_S):
                await until_evaluated(self._setup.recipe.shared.run.engine)
                return
        self._notes.say(
            f"the last version's evaluation is not done after {LAST_EVALUATION_S / 3600:.0f} h; "
            "the report has what is there"
        )

    async def _start(self, command: Command) -> Running:
        return await self._processes.start(command, restarts=RESTARTS)

    def _model(self) -> Path:
        """Weights of the policy's shape that are there: what samplers start with."""
        policy = self._setup.recipe.resolve(self._setup.recipe.shared.policy.model)
        if any(maker.makes == policy and maker.kind == "sft" for maker in self._makers):
            return needs.warm_up_model(self._setup.recipe)
        return policy

    async def _note_memory(self) -> None:
        noted = 0.0
        while True:
            self._status.memory = self._memory.now
            if self._memory.peak > noted * GROWN:
                noted = self._memory.peak
                self._notes.memory(self._memory.peak)
            await asyncio.sleep(1.0)


async def until_evaluated(address: str) -> None:
    """Returns when the engine has evaluated the last version. NotReady once it has been away for
    AWAY_S."""
    heard = time.monotonic()
    while (says := await ask(address, timeout=STATUS_S)) is None or not says.evaluated:
        if says is not None:
            heard = says.at
        elif time.monotonic() - heard > AWAY_S:
            raise NotReady(
                f"the engine at {address} has not answered for {AWAY_S / 60:.0f} min, and the last "
                "version is not evaluated: start it again"
            )
        await asyncio.sleep(LOOK_S)


def _removed(run: Path) -> ConsoleError:
    return ConsoleError(
        f"{run} was removed or replaced while the run went on: its processes were stopped and "
        "nothing of it is kept; the same command begins anew"
    )


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs `work` beside the body and ends it with the body."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _together(*work: Coroutine[Any, Any, None]) -> None:
    """All at once; the first failure ends the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
