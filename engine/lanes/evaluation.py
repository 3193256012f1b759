"""The evaluation lane: suites of tasks under one weight version, never leased for training.

Invariants
- One evaluation runs whole under one version: the publisher waits for `idle` before it pauses
  the samplers.
- A suite is evaluated once a version; what evaluations.jsonl holds is not done again.
- It counts neither as running nor as accepted in the capacity formula.

Leaves evaluations.jsonl (one line a suite and version) and samples.jsonl (a few trajectories
as text) in the run folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import orjson
import structlog

from engine.config import Evaluation, Suite
from engine.rewards.rewards import Rewards
from engine.rollout.assignment import Assignment, Setting
from engine.rollout.attempts import run_trajectory
from engine.rollout.view import spelled
from engine.tasks import TaskSource, for_purpose
from toolwright.types import Purpose, SamplingParams, Trajectory, WeightVersion

FULL_SECONDS = 5.0
"""Between tries to write results on a full disk."""

log = structlog.get_logger("evaluation")


class EvaluationLane:
    """Runs the suites that are due; at most one evaluation at a time."""

    def __init__(
        self,
        *,
        table: Evaluation,
        steps: int,
        setting: Setting,
        rewards: Rewards,
        folder: Path,
        sampling: SamplingParams,
        run_folder: Path,
        boot: int,
        max_attempts: int,
    ) -> None:
        """StartupError when a suite's source cannot be read or is too short."""
        self._table = table
        self._steps = steps
        self._setting = setting
        self._rewards = rewards
        self._sampling = sampling
        self._boot = boot
        self._max_attempts = max_attempts
        self._results = run_folder / "evaluations.jsonl"
        self._samples = run_folder / "samples.jsonl"
        self._sources = {
            suite.name: TaskSource(suite.source, folder, seed=suite.seed, shuffle=False)
            for suite in table.suites
        }
        self._tasks = {
            suite.name: [
                for_purpose(task, Purpose.EVAL) for task in self._sources[suite.name].take(suite.n)
            ]
            for suite in table.suites
        }
        for file in (self._results, self._samples):
            _drop_cut_line(file)
        self._done = {(r["suite"], r["lineage"], r["step"]) for r in _lines(self._results)}
        self._current: asyncio.Task[None] | None = None
        self._began = asyncio.Event()
        self._stopped = False
        self.running = 0
        self.full = False
        """The disk is: an evaluation waits with its results."""

    @property
    def busy(self) -> bool:
        return self._current is not None and not self._current.done()

    def due(self, version: WeightVersion) -> list[Suite]:
        """Suites to run at this version that were not run at it before."""
        now = {"every"} if self._table.every and version.step % self._table.every == 0 else set()
        if version.step == 0:
            now |= {"every", "ends"}
        if version.step == self._steps:
            now |= {"every", "ends", "last"}
        return [
            suite
            for suite in self._table.suites
            if suite.when in now and (suite.name, version.lineage, version.step) not in self._done
        ]

    def start(self, version: WeightVersion) -> None:
        """Begins what is due at the version that the samplers have now, unless it was stopped."""
        suites = [] if self._stopped else self.due(version)
        if suites:
            self._current = asyncio.get_running_loop().create_task(self._run(suites, version))
            self._began.set()

    async def idle(self) -> bool:
        """Returns when no evaluation runs: False when the last one was stopped before its end.

        Raises what it raised.
        """
        current = self._current
        if current is None:
            return True
        await asyncio.wait({current})
        if current.cancelled():
            return False
        current.result()
        return True

    async def watch(self) -> None:
        """Runs until cancelled; raises what an evaluation raised, at once."""
        while True:
            await self._began.wait()
            self._began.clear()
            await self.idle()

    async def stop(self) -> None:
        """For good. The suite that was running is done again at the engine's next start."""
        self._stopped = True
        if self._current is not None:
            self._current.cancel()
            await asyncio.gather(self._current, return_exceptions=True)

    async def _run(self, suites: Iterable[Suite], version: WeightVersion) -> None:
        """All of them share the places, in order, so that no suite's last ones run alone."""
        places = asyncio.Semaphore(self._table.max_concurrent)
        async with asyncio.TaskGroup() as group:
            for suite in suites:
                group.create_task(self._evaluate(suite, version, places))

    async def _evaluate(
        self, suite: Suite, version: WeightVersion, places: asyncio.Semaphore
    ) -> None:
        began = time.monotonic()
        trajectories = await self._roll_out(suite, version, places)
        await self._record(suite, version, trajectories, time.monotonic() - began)

    async def _roll_out(
        self, suite: Suite, version: WeightVersion, places: asyncio.Semaphore
    ) -> list[Trajectory]:
        sampling = replace(self._sampling, temperature=suite.temperature)

        async def one(index: int) -> Trajectory:
            task = self._tasks[suite.name][index]
            media = self._sources[suite.name].media(task)
            assignment = Assignment(
                trajectory_id=f"e{version.lineage}.{version.step}.{suite.name}-{index}",
                group_id=f"e{version}.{suite.name}",
                index=index,
                attempt=f"b{self._boot}a",
                task=task,
                media=media,
                sampling=sampling,
                withhold_observations=suite.withhold_observations,
            )
            async with places:
                self.running += 1
                try:
                    return await run_trajectory(
                        self._setting, assignment, max_attempts=self._max_attempts
                    )
                finally:
                    self.running -= 1

        async with asyncio.TaskGroup() as group:
            rollouts = [group.create_task(one(index)) for index in range(suite.n)]
        scored = []
        for rollout in rollouts:
            scored.extend(await self._rewards.score([rollout.result()]))
        return scored

    async def _record(
        self, suite: Suite, version: WeightVersion, trajectories: list[Trajectory], seconds: float
    ) -> None:
        rewards = [t.reward for t in trajectories]
        mean = fmean(rewards)
        variance = sum((r - mean) ** 2 for r in rewards) / max(len(rewards) - 1, 1)
        result = {
            "suite": suite.name,
            "lineage": version.lineage,
            "step": version.step,
            "n": len(rewards),
            "reward": mean,
            "stderr": math.sqrt(variance / len(rewards)),
            "temperature": suite.temperature,
            "seconds": round(seconds, 3),
            "calls": fmean(len(t.calls) for t in trajectories),
            "response_tokens": fmean(t.response_tokens for t in trajectories),
            "masked": sum(t.masked for t in trajectories),
        }
        chosen = trajectories[: self._table.samples]
        await self._write(self._samples, [self._sample(suite, version, t) for t in chosen])
        await self._write(self._results, [result])
        self._done.add((suite.name, version.lineage, version.step))
        log.info("evaluated", **result)

    async def _write(self, file: Path, rows: list[dict[str, object]]) -> None:
        """Appends the rows, all of them or none; on a full disk it waits for space."""
        while True:
            try:
                _append(file, rows)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                log.warning("disk_full", file=str(file), mend="free space; the run goes on")
                self.full = True
                await asyncio.sleep(FULL_SECONDS)
            else:
                self.full = False
                return

    def _sample(
        self, suite: Suite, version: WeightVersion, trajectory: Trajectory
    ) -> dict[str, object]:
        codec = self._setting.codec
        return {
            "suite": suite.name,
            "lineage": version.lineage,
            "step": version.step,
            "index": trajectory.index,
            "task_id": trajectory.task.id,
            "answers": list(trajectory.task.answers),
            "reward": trajectory.reward,
            "stop_reason": trajectory.stop_reason.name.lower(),
            "timings": {
                "wall_s": trajectory.timings.wall_s,
                "generate_s": trajectory.timings.generate_s,
                "tool_s": trajectory.timings.tool_s,
                "open_s": trajectory.timings.open_s,
                "reward_s": trajectory.timings.reward_s,
            },
            "segments": [
                {"author": segment.author.name.lower(), "text": spelled(segment, codec)}
                for sequence in trajectory.sequences
                for segment in sequence.segments
            ],
        }


def _lines(file: Path) -> list[dict[str, object]]:
    if not file.exists():
        return []
    return [orjson.loads(line) for line in file.read_bytes().splitlines() if line.strip()]


def _drop_cut_line(file: Path) -> None:
    """A kill may cut the last line; what is appended must not be joined to it."""
    if file.exists():
        data = file.read_bytes()
        os.truncate(file, data.rfind(b"\n") + 1)


def _append(file: Path, rows: Iterable[dict[str, object]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab", buffering=0) as out:
        whole = out.tell()
        left = memoryview(b"".join(orjson.dumps(row) + b"\n" for row in rows))
        try:
            while left:
                left = left[out.write(left) :]
        except OSError:
            # Nothing of it stays, so that it can be written again.
            with contextlib.suppress(OSError):
                out.truncate(whole)
            raise
