"""The course of a demonstration: what is started, awaited and measured, in which order.

    untrained policy -> sampler starts |-> demonstrations -> warm-up      for every seed:
                        tools start    |                                  engine + learner
                                                                          -> last evaluation

A subject whose model exists already begins with the servers.

Sampler and tool service are started once and serve all runs; the engine brings the sampler to the
weights of its own run. Engine and learner are new processes for every run. The control takes the
first seed's warm policy and trains it with learning rate 0: all else is the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from bench import ready
from bench.demo.commands import Addresses, Commands, Overrides
from bench.demo.errors import DemoError
from bench.demo.follow import follow_training, follow_warm_up
from bench.demo.progress import Screen
from bench.demo.records import read_record
from bench.demo.subject import ROOT, Subject
from bench.demo.types import Outcome, ProcessRow, Trained
from bench.memory import MemoryMeter
from bench.processes import Command, Processes
from bench.versions import machine, sampler_versions, versions
from toolwright.recipe import Recipe, RecipeError, check_all, load_recipe

START_S = 240.0  # the sampler imports for a quarter of a minute, on a busy machine for minutes
LAST_EVALUATION_S = 1800.0
ENGINE_DRAIN_S = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asked for; `overrides` of the recipe go to every process."""

    commands: Commands
    folder: Path
    seeds: tuple[int, ...]
    control: bool
    overrides: Overrides = field(default_factory=dict)


class Course:
    """One demonstration; `run` returns what the report shows."""

    def __init__(self, options: Options, processes: Processes, screen: Screen) -> None:
        """DemoError when the recipe does not fit, before anything is started."""
        self._options = options
        self._commands = options.commands
        self._subject = options.commands.subject
        self._recipe = _checked(self._subject, options.overrides)
        self._processes = processes
        self._screen = screen
        self._memory = MemoryMeter()
        self._rows: dict[str, ProcessRow] = {}
        self._seconds: dict[str, float] = {}
        self._done = 0

    async def run(self) -> Outcome:
        """DemoError when a process fails; nothing is stopped here, the context does that."""
        options = self._options
        started = datetime.now().astimezone().isoformat(timespec="seconds")
        async with self._beside(self._memory.run()), self._beside(self._show_memory()):
            runs, control = await self._processes.while_alive(self._runs())
        self._seconds["total"] = self._screen.elapsed
        return Outcome(
            runs=tuple(runs),
            control=control,
            seconds=self._seconds,
            versions=versions() | sampler_versions() | machine(),
            processes=tuple(self._rows.values()),
            subject=self._subject,
            settings={"recipe": self._subject.recipe.read_text(), "overrides": options.overrides},
            peak_memory=self._memory.peak,
            started=started,
        )

    async def _runs(self) -> tuple[list[Trained], Trained | None]:
        options = self._options
        first, *others = options.seeds
        self._screen.stage("making the untrained policy, starting the servers")
        sampler, tools = ready.free_ports(2)
        self._addresses = Addresses(sampler=sampler, tools=tools)
        await self._make_policy(first)
        # The servers start while the first policy is warmed up: two cores, two jobs.
        await _together(self._start_servers(self._untrained(first)), self._warm_up(first))
        runs = [await self._train(first)]
        for seed in others:
            await self._make_policy(seed)
            await self._warm_up(seed)
            runs.append(await self._train(seed))
        control = await self._train(first, control=True) if options.control else None
        return runs, control

    async def _start_servers(self, model: Path) -> None:
        began = time.monotonic()
        addresses, processes = self._addresses, self._processes
        sampler = await processes.start(
            self._noted(self._commands.sampler(model, addresses.sampler), "SGLang: streams tokens")
        )
        serve = self._commands.tools(addresses.tools_address)
        tools = await processes.start(self._noted(serve, "Python sessions in sandboxes"))
        sampler_ready = ready.http_ready(addresses.sampler_probe)
        tools_ready = ready.grpc_ready(addresses.tools_address)
        await _together(
            processes.until_ready(sampler, sampler_ready, START_S),
            processes.until_ready(tools, tools_ready, START_S),
        )
        self._seconds["servers_start"] = time.monotonic() - began

    async def _make_policy(self, seed: int) -> None:
        folder = self._folder(seed)
        folder.mkdir(parents=True)
        if self._subject.model is None:
            command = self._commands.policy(f"policy-{seed}", self._untrained(seed), seed)
            await self._processes.run(command)

    async def _warm_up(self, seed: int) -> None:
        """Demonstrations, rendered and imitated."""
        began = time.monotonic()
        self._screen.stage(f"seed {seed}: warm-up on imperfect demonstrations")
        folder, processes = self._folder(seed), self._processes
        overrides: Overrides = {
            **self._options.overrides,
            "run.folder": str(folder / "run"),
            "policy.model": str(self._untrained(seed)),
            "render.model": str(self._untrained(seed)),
            "render.conversations": str(folder / "demonstrations.jsonl"),
            "render.output": str(folder / "demonstrations.trajectories"),
            "sft.model": str(self._untrained(seed)),
            "sft.data": str(folder / "demonstrations.trajectories"),
            "sft.output": str(folder / "warm"),
            "sft.seed": seed,
        }
        path = folder / "demonstrations.jsonl"
        await processes.run(self._commands.demonstrations(f"demonstrations-{seed}", path, seed))
        await processes.run(self._commands.render(f"render-{seed}", overrides))
        status = self._screen.status
        status.steps = int(self._recipe.raw["sft"]["steps"])
        async with self._beside(follow_warm_up(folder / "run", status)):
            command = self._commands.sft(f"sft-{seed}", overrides)
            await processes.run(self._noted(command, "Megatron: imitation of demonstrations"))
        self._count("warm_up", time.monotonic() - began)

    async def _train(self, seed: int, *, control: bool = False) -> Trained:
        """One run of engine and learner, with the evaluation of its last version."""
        began = time.monotonic()
        steps = self._recipe.shared.run.steps
        name = "control" if control else f"seed-{seed}"
        stage = "control, learning rate 0" if control else f"seed {seed}: reinforcement learning"
        self._screen.stage(stage, steps=steps)
        folder = self._options.folder / "control/run" if control else self._folder(seed) / "run"
        (port,) = ready.free_ports(1)
        overrides: Overrides = {
            **self._options.overrides,
            **self._addresses.overrides(),
            "run.engine": f"127.0.0.1:{port}",
            "run.folder": str(folder),
            "run.seed": seed,
            "policy.model": str(self._folder(seed) / "warm"),
            "engine.drain_s": ENGINE_DRAIN_S,
            **({"learner.optimizer.lr": 0.0} if control else {}),
        }
        processes = self._processes
        serve = self._commands.engine(f"engine-{name}", overrides)
        engine = await processes.start(self._noted(serve, "trajectories and rewards"))
        status = self._screen.status
        async with self._beside(follow_training(folder, status, **self._after(control=control))):
            learner = self._commands.learner(f"learner-{name}", overrides)
            await processes.run(self._noted(learner, "Megatron: GRPO, publishes weights"))
            trained = time.monotonic()
            await processes.until_ready(
                engine, ready.evaluated(f"127.0.0.1:{port}"), LAST_EVALUATION_S
            )
        await processes.stop(engine)
        self._count("control" if control else "training", trained - began)
        self._count("last_evaluation", time.monotonic() - trained)
        self._done += 1
        return Trained(
            seed=seed,
            control=control,
            last_step=steps,
            record=read_record(folder),
        )

    def _folder(self, seed: int) -> Path:
        return self._options.folder / f"seed-{seed}"

    def _untrained(self, seed: int) -> Path:
        return self._subject.model or self._folder(seed) / "untrained"

    def _after(self, *, control: bool) -> dict[str, Any]:
        """What follows the run that begins now: runs, and seconds of their warm-ups."""
        seeds = 0 if control else len(self._options.seeds) - self._done - 1
        runs = seeds + (self._options.control and not control)
        warm_up = self._seconds["warm_up"] / min(self._done + 1, len(self._options.seeds))
        return {"runs_after": runs, "warm_ups_after_s": seeds * warm_up}

    def _count(self, stage: str, seconds: float) -> None:
        self._seconds[stage] = self._seconds.get(stage, 0.0) + seconds

    def _noted(self, command: Command, what: str) -> Command:
        """The command, with a row for it in the report."""
        words = [word.replace(str(ROOT) + "/", "") for word in command.argv]
        self._rows[command.name] = ProcessRow(name=command.name, command=" ".join(words), what=what)
        return command

    async def _show_memory(self) -> None:
        while True:
            self._screen.status.memory = self._memory.now
            await asyncio.sleep(1.0)

    @asynccontextmanager
    async def _beside(self, work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
        """Runs `work` beside the body and ends it with the body."""
        task = asyncio.create_task(work)
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def _checked(subject: Subject, overrides: Overrides) -> Recipe:
    try:
        recipe = load_recipe(subject.recipe, [f"{k}={v}" for k, v in overrides.items()])
        check_all(recipe)
    except RecipeError as error:
        raise DemoError(str(error)) from error
    return recipe


async def _together(*work: Coroutine[Any, Any, None]) -> None:
    """All at once; the first failure ends the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
