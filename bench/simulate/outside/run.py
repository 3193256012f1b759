"""One run of outside agents: lives of engine, HTTP workers and agent hosts, and what the records
must keep.

Promises
- A completion that an agent got is in the record of its trajectory, once.
- A call has one completion in the record for each sample that its client requested: a marked retry
  is no further sample.
- Each id that the policy wrote came from a sampler that had read the ids before it, and has that
  sampler's version.
- A completion is trainable in one sequence at most.
- No agent is lost: each one comes to its end, or its host died. Then its trajectory starts again,
  and the record has the calls of one attempt, whose agent came to its end.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from unittest import mock

import engine.core.engine_core
from bench.engine.plan import END
from bench.history.events import Sampled
from bench.simulate.neighbours.ingress_channel import IngressNetwork
from bench.simulate.outside.agent_host import SimulatedHost
from bench.simulate.outside.agents import Agents
from bench.simulate.outside.http_half import BusyWorkers, HttpHalf
from bench.simulate.outside.plan import TEMPLATE, OutsideFault, OutsidePlan, outside_recipe
from bench.simulate.playing.one_run import BOUND_S, Run
from bench.simulate.playing.play import SHM
from bench.simulate.schedule import Schedule
from bench.simulate.virtual.loop import Owner, VirtualLoop, loop_here
from bench.simulate.virtual.world import Say, world
from bench.simulate.workload import REWARD_WITNESSES, make_policy
from engine.core.text.codec import HuggingFaceCodec
from ingress.metrics import Metrics
from ingress.model_call import Text
from ingress.text.tails import Tails
from toolwright.chat.tokenizer import ChatTokenizer
from toolwright.recipe import Recipe, load_recipe
from toolwright.types import Author, Sequence, Trajectory, ids

AWAY_S = 2.0
"""Longest time that a killed process is away, in seconds."""
STOP_S = 15.0
"""Longest time from SIGTERM to the end of an agent host, in seconds."""
LOST = "agent lost"
"""Counts the agents whose host was killed, beside the faults."""
_CALL = re.compile(r"#(\d+);" + re.escape(END) + r"assistant:$")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsidePlayed:
    """The outcome of a plan."""

    records: int
    calls: int
    faults: Counter[str]
    errors: tuple[str, ...]
    """Broken promises."""


@contextmanager
def outside_studio() -> Iterator[OutsideStudio]:
    """The parts that all plans of a process share, in a folder that ends with it."""
    shm = SHM if SHM.is_dir() else None
    with TemporaryDirectory(prefix="outside-", dir=shm) as folder:
        yield OutsideStudio(Path(folder))


class OutsideStudio:
    """A policy folder and its tokenizer, read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._policy = make_policy(folder / "policy", TEMPLATE)
        self._codec = HuggingFaceCodec(self._policy)
        self._tokenizer = ChatTokenizer(self._policy)
        self._tails = Tails(ChatTokenizer(self._policy))

    def play(self, plan: OutsidePlan, *, say: Say | None = None) -> OutsidePlayed:
        """Raises Stuck for a run that does not come to its end."""
        loop = VirtualLoop(Random(f"loop {plan.seed}"))
        with (
            TemporaryDirectory(dir=self._folder) as folder,
            mock.patch.object(engine.core.engine_core, "build_codec", lambda *_: self._codec),
            world(loop, plan.seed, say),
        ):
            file = Path(folder) / "recipe.toml"
            toml = outside_recipe(plan, policy=self._policy, folder=Path(folder))
            file.write_text(toml, encoding="utf-8")
            threads, metrics = Random(f"threads {plan.seed}"), Metrics()

            def text() -> Text:
                workers = BusyWorkers(self._tails, threads)
                return Text(self._tokenizer, workers, tails=True, metrics=metrics)

            run = OutsideRun(plan, loop, load_recipe(file), self._policy, text)
            loop.run_until_complete(run.play())
            loop.close()
        errors = [*run.errors, *loop.complaints, *run.agents.errors, *run.broken(self._codec)]
        return OutsidePlayed(
            records=len(run.records),
            calls=len(run.agents.calls),
            faults=run.faults,
            errors=tuple(errors),
        )


class OutsideRun(Run):
    """Call `play` once."""

    def __init__(
        self,
        plan: OutsidePlan,
        loop: VirtualLoop,
        made: Recipe,
        policy: Path,
        text: Callable[[], Text],
    ) -> None:
        """text: makes the text half of an HTTP worker, which dies with it."""
        super().__init__(Schedule(seed=plan.seed, workload=plan.workload), loop, made, policy)
        self.records: dict[str, Trajectory] = {}
        self.faults = Counter[str]()
        self._plan = plan
        self._text = text
        self._dice = Random(f"faults {plan.seed}")
        self._ingress = self._link = IngressNetwork(Random(f"ingress {plan.seed}"))
        self._link.cuts = plan.cuts
        self._learner.see_record = self._saw_record
        self._made = 0
        self._halves: list[HttpHalf] = []
        self._next = 0
        self._hosts: dict[int, SimulatedHost] = {}
        """By number; a host that is away is missing."""
        self._lives_of_hosts = 0
        self.agents = Agents(plan, self._link.channel(), self._any_half)

    async def play(self) -> None:
        REWARD_WITNESSES[:] = []
        self._halves += (self._half() for _ in range(self._plan.halves))
        await self._host.start()
        supervising = asyncio.create_task(self._supervise())
        self._learner.start()
        agents = Owner(loop_here(), "agents")
        workers = range(0 if self._plan.hosts else self._plan.workers)
        working = [agents.spawn(self.agents.work(one)) for one in workers]
        for number in range(self._plan.hosts):
            self._hosts[number] = self._agent_host(number)
        async with asyncio.TaskGroup() as faults:
            for at, fault in self._plan.faults:
                faults.create_task(self._do(at, fault))
        complete = True
        try:
            async with asyncio.timeout(BOUND_S):
                await self._learner.complete.wait()
        except TimeoutError:
            complete = False
            self.errors.append("the run does not come to its end")
        for task in (*working, *(one.task for one in self._hosts.values())):
            if task.done() and not task.cancelled() and task.exception() is not None:
                self.errors.append(f"an agent, or its host, failed: {task.exception()!r}")
        agents.die()
        await agents.buried()
        for host in self._hosts.values():
            await self._kill_host(host)
        for half in self._halves:
            await self._bury(half)
        await self._end(supervising, complete=complete)

    async def _do(self, at: float, fault: OutsideFault) -> None:
        await asyncio.sleep(at)
        self.faults[fault] += 1
        match fault:
            case OutsideFault.ENGINE_KILL | OutsideFault.ENGINE_STOP:
                self._faults.engine_may_start.clear()
                kills = fault is OutsideFault.ENGINE_KILL
                await (self._kill() if kills else self._terminate())
                await asyncio.sleep(self._dice.uniform(0.0, AWAY_S))
                self._faults.engine_may_start.set()
            case OutsideFault.HTTP_KILL:
                number = self._dice.randrange(len(self._halves))
                dead, self._halves[number] = self._halves[number], self._half()
                await self._bury(dead)
            case OutsideFault.AGENT_HOST_KILL | OutsideFault.AGENT_HOST_STOP:
                number = self._dice.randrange(self._plan.hosts)
                if (host := self._hosts.pop(number, None)) is None:
                    return  # it is away already
                if fault is OutsideFault.AGENT_HOST_KILL:
                    self.faults[LOST] += host.agents
                    await self._kill_host(host)
                else:
                    self.errors += await host.stop(STOP_S)
                await asyncio.sleep(self._dice.uniform(0.0, AWAY_S))
                self._hosts[number] = self._agent_host(number)
            case OutsideFault.SAMPLER_CUT:
                self._dice.choice(self._servers).break_streams()
            case OutsideFault.ENGINE_LINKS_CUT:
                self._link.break_streams()

    def _half(self) -> HttpHalf:
        self._made += 1
        return HttpHalf(self._made, self._link, self._text())

    async def _bury(self, half: HttpHalf) -> None:
        self._link.client_died(half.owner)
        half.owner.die()
        left = await half.owner.buried()
        self.errors += [f"a task of an HTTP worker did not end: {name}" for name in left]

    def _agent_host(self, number: int) -> SimulatedHost:
        self._lives_of_hosts += 1
        life, plan = self._lives_of_hosts, self._plan
        return SimulatedHost(
            f"host {number}",
            life,
            self._link.channel(),
            self.agents.converse,
            Random(f"host {life} {plan.seed}"),
            plan.workers,
        )

    async def _kill_host(self, host: SimulatedHost) -> None:
        self._link.client_died(host.owner)
        left = await host.kill()
        self.errors += [f"a task of an agent host did not end: {name}" for name in left]

    def _any_half(self) -> HttpHalf:
        self._next += 1
        return self._halves[self._next % len(self._halves)]

    def _saw_record(self, record: Trajectory) -> None:
        self.records[record.id] = record

    # ---- promises ----

    def broken(self, codec: HuggingFaceCodec) -> Iterator[str]:
        """Sentences on broken promises."""
        sent: dict[str, list[Sampled]] = defaultdict(list)
        for event in self.history:
            if isinstance(event, Sampled):
                sent[event.attempt].append(event)
        known = {one: logged for one, logged in self.agents.calls.items() if logged.delivered}
        for name, record in self.records.items():
            ended = {one for one in self.agents.ended if one.startswith(f"{name}/")}
            if not ended:
                yield f"{name} has a record before its agent's end"
                continue
            mine = [one for key, some in sent.items() if key.startswith(f"{name}/") for one in some]
            texts, of_call = Counter[str](), Counter[int]()
            trained = Counter[str]()
            for sequence in record.sequences:
                for completion in completions(sequence):
                    yield from completion.broken(name, mine)
                    text = codec.decode(completion.token_ids).removesuffix(END)
                    trained[text] += completion.trainable
                    if completion.copied:
                        continue
                    texts[text] += 1
                    found = _CALL.search(codec.decode(completion.prompt))
                    if found is None:
                        yield f"{name}: no call requested {text!r}"
                    else:
                        of_call[int(found[1])] += 1
            attempts = {self.agents.calls[number].attempt for number in of_call}
            if len(attempts) != 1 or not attempts <= ended:
                yield f"{name} has calls of {sorted(attempts)}; agents ended {sorted(ended)}"
                continue
            for number, logged in self.agents.calls.items():
                if logged.attempt not in attempts:
                    continue
                if number in known and of_call[number] < len(logged.delivered):
                    yield f"{name}: call {number} is lost"
                if of_call[number] > logged.samples:
                    have = of_call[number]
                    yield f"{name}: call {number} has {have} completions, not {logged.samples}"
                for text in logged.delivered:
                    if texts[text] != 1:
                        yield f"{name}: {text!r} was delivered and is recorded {texts[text]} times"
            yield from (
                f"{name}: {text!r} is trained twice" for text in trained if trained[text] > 1
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One completion in a sequence."""

    prompt: list[int]
    token_ids: list[int] = field(default_factory=list)
    versions: list[object] = field(default_factory=list)
    """One for each id."""
    trainable: bool
    copied: bool
    """It belongs to the prefix that the sequence shares with its parent."""

    def broken(self, name: str, sent: list[Sampled]) -> Iterator[str]:
        """A sentence unless requests to samplers, one after the other, gave these ids."""
        ends = {0}
        """Numbers of ids after which a request may have ended."""
        for at in range(len(self.token_ids)):
            if at in ends:
                before = ids([*self.prompt, *self.token_ids[:at]])
                longest = max(
                    (self._same(at, one) for one in sent if one.prompt == before), default=0
                )
                ends |= set(range(at + 1, at + 1 + longest))
        if len(self.token_ids) not in ends:
            yield f"{name}: no sampler wrote id {max(ends)} of a completion after that prefix"

    def _same(self, at: int, sampled: Sampled) -> int:
        """Number of ids from `at` on that a sampler wrote, with its version."""
        rest = zip(self.token_ids[at:], sampled.token_ids, self.versions[at:], strict=False)
        count = 0
        for mine, theirs, version in rest:
            if mine != theirs or version != sampled.version:
                break
            count += 1
        return count


def completions(sequence: Sequence) -> Iterator[Completion]:
    """The completions of a sequence, in order."""
    before: list[int] = []
    shared = sequence.fork_offset or 0
    open_one: Completion | None = None
    turn: int | None = None
    for segment in sequence.segments:
        if segment.author is Author.MODEL:
            if open_one is None or segment.turn != turn:
                if open_one is not None:
                    yield open_one
                open_one = Completion(
                    prompt=list(before),
                    trainable=segment.trainable,
                    copied=len(before) < shared,
                )
                turn = segment.turn
            open_one.token_ids.extend(segment.token_ids)
            open_one.versions.extend([segment.weight_version] * len(segment.token_ids))
        elif open_one is not None:
            yield open_one
            open_one = None
        before += segment.token_ids
    if open_one is not None:
        yield open_one
