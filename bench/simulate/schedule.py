"""What one simulated run is: a workload and a list of faults, both drawn from a seed.

Pure. The list of faults can be shortened and played again with the same workload.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum, auto
from random import Random


class Kind(StrEnum):
    """A fault. `target` is a number where it says so; `seconds` is how long it lasts."""

    ENGINE_KILL = auto()
    """The engine is gone at once; it starts again after `seconds`."""
    ENGINE_STOP = auto()
    """SIGTERM; it starts again `seconds` after its end."""
    HOST_KILL = auto()
    """The tool host and its sessions are gone; another one starts after `seconds`."""
    TOOLS_CUT = auto()
    """The network to the tool host refuses connections."""
    TOOLS_HANG = auto()
    """The network to the tool host delivers nothing; requests run into their deadlines."""
    ANSWERS_LOST = auto()
    """Some connections break after the request arrived and before its answer does."""
    STREAMS_BREAK = auto()
    """Every stream of calls breaks once."""
    LEASES_END = auto()
    """The leases of all sessions end: the host reaps them."""
    SAMPLER_KILL = auto()
    """Server `target` is gone; it comes back with weights of another time."""
    SAMPLER_CUT = auto()
    """The streams of server `target` break once."""
    SAMPLER_FLAKY = auto()
    """Each stream of server `target` breaks after some chunks."""
    SAMPLER_HANG = auto()
    """Server `target` says nothing."""
    SAMPLER_SLOW = auto()
    """Server `target` needs 20 times as long a token."""
    SAMPLER_REFUSES = auto()
    """Server `target` refuses weights."""
    PUBLISH_BREAKS = auto()
    """Server `target` dies amid its next update, and is back after `seconds`."""
    DISK_FULL = auto()
    """The journal's disk has no room."""
    LEARNER_KILL = auto()
    """The learner is gone; it begins at its checkpoint after `seconds`."""
    LEARNER_LOOPS = auto()
    """The learner is killed, and ends again after each of its next `target` publishes."""
    LEARNER_STALLS = auto()
    """The learner leases nothing."""
    WORKER_KILL = auto()
    """Worker `target` of the engine is gone; the engine starts another one."""
    WORKER_STRAY = auto()
    """Worker `target` counts as dead, and works on for `seconds` with a clock that stands still."""
    CREW_CUT = auto()
    """Every stream between the engine and its workers breaks once."""
    CREW_HANG = auto()
    """Nothing passes between the engine and its workers, and neither notices."""


ON_SERVERS = (
    Kind.SAMPLER_KILL, Kind.SAMPLER_CUT, Kind.SAMPLER_FLAKY, Kind.SAMPLER_HANG, Kind.SAMPLER_SLOW,
    Kind.SAMPLER_REFUSES, Kind.PUBLISH_BREAKS,
)  # fmt: skip
ON_WORKERS = (Kind.WORKER_KILL, Kind.WORKER_KILL, Kind.CREW_CUT, Kind.CREW_HANG)
"""Faults of a schedule with workers, beside the others."""
STRAYS = 0.3
"""Share of the schedules with workers in which a worker also goes astray."""
ADAPTS = 0.2
"""Share of the schedules without workers in which the engine adapts what is in flight."""
WEIGHTS = {
    Kind.ENGINE_KILL: 9, Kind.HOST_KILL: 3, Kind.TOOLS_CUT: 2, Kind.ANSWERS_LOST: 2,
    Kind.SAMPLER_CUT: 3, Kind.SAMPLER_FLAKY: 3, Kind.SAMPLER_KILL: 4, Kind.SAMPLER_HANG: 2,
    Kind.PUBLISH_BREAKS: 2, Kind.LEARNER_KILL: 3, Kind.LEARNER_LOOPS: 4, Kind.DISK_FULL: 4,
}  # fmt: skip
"""How often a kind is drawn; 1 where it is not named."""
MOMENTS = {
    "Effect": 20, "Dispatched": 20, "Sampled": 30, "SessionOpened": 16, "Loaded": 12, "Offered": 8,
    "Trained": 4, "Publishing": 4, "Published": 4, "Acknowledged": 2, "LifeBegan": 3,
    "Admitted": 20, "FaultEnded": 3,
}  # fmt: skip
"""Events of a history that faults follow, and up to which of their kind."""
AT_MOMENTS = {
    Kind.ENGINE_KILL: ("Effect", "Dispatched", "Sampled", "Acknowledged", "Published"),
    Kind.LEARNER_KILL: ("Publishing", "Trained"),
    Kind.LEARNER_LOOPS: ("Acknowledged",),
    Kind.SAMPLER_KILL: ("Publishing", "Loaded", "Sampled"),
    Kind.WORKER_KILL: ("Effect", "Dispatched", "Sampled", "SessionOpened", "Loaded"),
    Kind.WORKER_STRAY: ("Effect", "Dispatched", "Sampled"),
}
"""Events after which a fault is most likely to find a bug: a kill may lose what tool host or
learner know; a learner with a checkpoint opens lineages at one step."""
LATER = ("FaultEnded", "Published")
"""Events whose effects show after seconds."""
LONG_WAIT_S = 20.0
"""New weights wait for an evaluation as long as it takes, in these schedules."""
LONGEST_S = {
    Kind.TOOLS_CUT: 30.0,
    Kind.TOOLS_HANG: 30.0,
    Kind.LEARNER_STALLS: 20.0,
    Kind.SAMPLER_FLAKY: 30.0,
    Kind.DISK_FULL: 40.0,
    Kind.HOST_KILL: 30.0,
    Kind.CREW_HANG: 30.0,
    Kind.WORKER_STRAY: 30.0,
}
"""Longest duration of a fault; 10 s where it is not named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    """at: seconds after the run began; or after event number `number`, from 1, of kind `after`."""

    at: float
    kind: Kind
    seconds: float = 0.0
    target: int = 0
    after: str = ""
    number: int = 0

    def __str__(self) -> str:
        where = f" server {self.target}" if self.kind in ON_SERVERS else ""
        moment = f" after {self.after} {self.number}" if self.after else ""
        return f"{self.at:.4f} s{moment}: {self.kind}{where} for {self.seconds:.3f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is rolled out, scored and trained on."""

    seed: int
    steps: int
    groups_per_step: int
    group_size: int
    eta: int
    places: int
    turns: int
    tokens: tuple[int, int]
    """Tokens of an action that no fault breaks."""
    token_s: float
    """Seconds a token."""
    servers: int
    incremental: bool
    """Servers stream deltas, not whole texts again and again."""
    text_stops: bool
    """The tool's stop is text of several tokens, and no server looks for it."""
    interval: int
    pause: str
    stateful: bool
    calls: int
    """Most calls of an action; 0 = outside agents write the trajectories, and no action calls."""
    marked: bool
    """A call is sent while its action goes on, unless it is the last one."""
    parallel: bool
    """The tool runs several calls of a session at once."""
    call_s: float
    """Mean seconds of a call."""
    open_s: float
    """Longest time that a session takes to open, in seconds."""
    max_sessions: int
    patience_s: float
    """Longest time to wait for a tool service, and least time to retry an attempt."""
    suite: int
    """Rows of the evaluation suite; 0 = no suite."""
    publish_waits_s: float
    """Longest time that new weights wait for an evaluation."""
    dynamic: bool
    branching: bool
    per_group: bool
    """The reward function takes a group."""
    keep_history: bool
    train_s: float
    checkpoint_every: int
    repeats_acknowledgements: bool
    """After a lease without enough groups the learner acknowledges again."""
    bad_rows: float
    """Share of rows that are no tasks."""
    unfit_rows: float
    """Share of tasks that the tool refuses."""
    workers: int = 0
    """Workers of the engine; 0 = it rolls out itself."""
    cache_tokens: int = 0
    """Size of each server's prefix cache, by which the engine adapts what is in flight; 0 = a fixed
    number is in flight."""

    @property
    def sampler_patience_s(self) -> float:
        """Longest time without a token, in seconds."""
        return 2 * self.patience_s

    @property
    def may_be_cut(self) -> bool:
        """New weights may cut an evaluation."""
        return self.publish_waits_s < LONG_WAIT_S

    @property
    def batch(self) -> int:
        return self.groups_per_step * self.group_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Equal schedules give equal histories."""

    seed: int
    workload: Workload
    faults: tuple[PlannedFault, ...] = field(default=())

    def with_faults(self, faults: tuple[PlannedFault, ...]) -> Schedule:
        return replace(self, faults=faults)


def schedule_of(seed: int, workers: int = 0) -> Schedule:
    """The schedule of a seed. workers: of the engine; with some, the same schedule has faults of
    workers too."""
    dice = Random(f"schedule {seed}")
    workload = _workload(seed, dice)
    count = min(int(dice.expovariate(1 / 4.5)), 10)
    kinds = [kind for kind in Kind if kind not in (*ON_WORKERS, Kind.WORKER_STRAY)]
    drawn = [kind for kind in kinds for _ in range(WEIGHTS.get(kind, 1))]
    faults = tuple(_fault(workload, dice, drawn) for _ in range(count))
    dice = Random(f"cache {seed}")
    if not workers and dice.random() < ADAPTS:
        workload = replace(workload, cache_tokens=dice.choice((30, 120, 2_000)))
    if workers:
        dice = Random(f"workers {seed}")
        workload = replace(workload, workers=workers)
        faults += tuple(_fault(workload, dice, ON_WORKERS) for _ in range(dice.randint(1, 4)))
        dice = Random(f"strays {seed}")
        if dice.random() < STRAYS:
            faults += (_fault(workload, dice, (Kind.WORKER_STRAY,)),)
    return Schedule(seed=seed, workload=workload, faults=faults)


def _workload(seed: int, dice: Random) -> Workload:
    group_size = dice.choice((1, 2, 2, 3, 4))
    least = dice.randint(2, 8)
    return Workload(
        seed=seed,
        steps=dice.randint(2, 4),
        groups_per_step=dice.choice((1, 1, 2, 3)) if group_size < 3 else dice.choice((1, 2)),
        group_size=group_size,
        eta=dice.choice((0, 0, 1, 1, 2)),
        places=dice.choice((2, 4, 16)),
        turns=dice.randint(1, 4),
        tokens=(least, least + dice.randint(0, 24)),
        token_s=dice.choice((0.005, 0.02, 0.08, 0.3)),
        servers=dice.choice((1, 2, 2, 3)),
        incremental=dice.random() < 0.7,
        text_stops=dice.random() < 0.3,
        interval=dice.choice((1, 4, 8)),
        pause=dice.choice(("retract", "retract", "in_place", "abort")),
        stateful=dice.random() < 0.7,
        calls=dice.choice((1, 1, 2, 4)),
        marked=dice.random() < 0.5,
        parallel=dice.random() < 0.5,
        call_s=dice.choice((0.01, 0.3, 2.0, 5.0)),
        open_s=dice.choice((0.05, 0.05, 0.5, 4.0)),
        max_sessions=dice.choice((2, 6, 64, 64)),
        patience_s=dice.choice((2.0, 15.0)),
        suite=dice.choice((0, 0, 1, 3, 8)),
        publish_waits_s=dice.choice((0.05, 1.0, LONG_WAIT_S)),
        dynamic=group_size > 1 and dice.random() < 0.2,
        branching=group_size > 1 and dice.random() < 0.3,
        per_group=dice.random() < 0.2,
        keep_history=dice.random() < 0.5,
        train_s=dice.choice((0.05, 0.3, 2.0)),
        checkpoint_every=dice.randint(1, 3),
        repeats_acknowledgements=dice.choice((False, True)),
        bad_rows=dice.choice((0.0, 0.0, 0.15)),
        unfit_rows=dice.choice((0.0, 0.0, 0.15)),
    )


def _fault(workload: Workload, dice: Random, kinds: Sequence[Kind]) -> PlannedFault:
    kind = dice.choice(kinds)
    longest = LONGEST_S.get(kind, 10.0)
    after = dice.choice(list(MOMENTS)) if dice.random() < 0.75 else ""
    if kind in AT_MOMENTS and dice.random() < 0.7:
        after = dice.choice(AT_MOMENTS[kind])
    action = workload.tokens[1] * workload.token_s
    turn = action + workload.call_s
    horizon = 1.0 + workload.steps * (workload.train_s + workload.turns * turn)
    return PlannedFault(
        at=round(_delay(dice, after) if after else dice.uniform(0.0, horizon), 4),
        kind=kind,
        seconds=round(min(longest, dice.expovariate(dice.choice((2.0, 30.0)) / longest)), 3),
        target=_target(kind, workload, dice),
        after=after,
        number=dice.randint(1, MOMENTS[after]) if after else 0,
    )


def _target(kind: Kind, workload: Workload, dice: Random) -> int:
    if kind is Kind.LEARNER_LOOPS:
        return dice.randint(2, 5)
    if kind in (Kind.WORKER_KILL, Kind.WORKER_STRAY):
        return dice.randrange(workload.workers)
    return dice.randrange(workload.servers) if kind in ON_SERVERS else 0


def _delay(dice: Random, after: str) -> float:
    """Seconds after an event: within its own turn, a commit, or a call; for `LATER` also a while
    later."""
    mean = dice.choice((0.02, 1.0, 4.0) if after in LATER else (0.005, 0.02, 0.02, 0.3))
    return dice.expovariate(1 / mean)
