"""What a seed draws: a crowd, and what is done to it when. Pure.

Invariants
- Equal seed, equal plan.
- Two harms of one target never overlap, and leave it `REST_S` between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, auto
from random import Random

REST_S = 2.0
TRAJECTORIES = (8, 24)
HARMS = (1, 4)


class Kind(StrEnum):
    """What is done."""

    KILL = auto()
    """SIGKILL; the process is started again when the harm ends."""
    TERM = auto()
    """SIGTERM, likewise."""
    STOP = auto()
    """SIGSTOP, and SIGCONT at the end."""
    WORKER = auto()
    """SIGKILL of one worker of the tool service, which replaces it."""
    CUT = auto()
    STALL = auto()
    HOLE = auto()
    SLOW = auto()
    """What a link does: see `tests.chaos.harm.proxy.Mode`."""
    FULL = auto()
    """The engine's disk is full, also for an engine that starts meanwhile."""
    CLOCK = auto()
    """The engine's wall clock jumps, and jumps back at the end."""


LINKED = {Kind.CUT, Kind.STALL, Kind.HOLE, Kind.SLOW}


@dataclass(frozen=True, slots=True, kw_only=True)
class Harm:
    """at: seconds after the start. seconds: until it is undone. amount: of a clock's jump."""

    kind: Kind
    target: str
    at: float
    seconds: float
    amount: float = 0.0

    def __str__(self) -> str:
        jump = f" by {self.amount:+.0f} s" if self.kind is Kind.CLOCK else ""
        return f"{self.at:.2f} s: {self.kind} {self.target}{jump} for {self.seconds:.2f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A crowd and its harms. rows: of each evaluation; 0 = no evaluation."""

    seed: int
    steps: int
    groups_per_step: int
    size: int
    eta: int
    stateful: bool
    rows: int
    samplers: int
    workers: int
    redis: bool
    pause: str
    checkpoint_every: int
    harms: tuple[Harm, ...]

    def __str__(self) -> str:
        tool = "stateful" if self.stateful else "stateless"
        crowd = (
            f"seed {self.seed}: {self.steps} steps of {self.groups_per_step} groups of "
            f"{self.size}, max_staleness {self.eta}, {tool} tool, {self.rows} rows, "
            f"{self.samplers} samplers, {self.workers} workers, pause {self.pause}, a checkpoint "
            f"every {self.checkpoint_every} steps"
            f"{', Redis' if self.redis else ''}"
        )
        return "\n  ".join([crowd, *map(str, self.harms)])


def draw(seed: int) -> Plan:
    """The plan of a seed."""
    dice = Random(f"chaos {seed}")
    shapes = [
        (steps, groups, size)
        for steps in (1, 2, 3, 4)
        for groups in (1, 2, 3)
        for size in (2, 3, 4)
        if TRAJECTORIES[0] <= steps * groups * size <= TRAJECTORIES[1]
    ]
    steps, groups, size = dice.choice(shapes)
    samplers, workers, redis = dice.choice((1, 2)), dice.choice((1, 1, 2)), dice.random() < 0.25
    return Plan(
        seed=seed,
        steps=steps,
        groups_per_step=groups,
        size=size,
        eta=dice.randint(0, 2),
        stateful=dice.random() < 0.7,
        rows=dice.choice((0, 0, 4)),
        samplers=samplers,
        workers=workers,
        redis=redis,
        pause=dice.choice(("retract", "in_place", "abort")),
        checkpoint_every=dice.choice((1, 2)),
        harms=_harms(dice, samplers=samplers, workers=workers, redis=redis, steps=steps),
    )


def _harms(
    dice: Random, *, samplers: int, workers: int, redis: bool, steps: int
) -> tuple[Harm, ...]:
    servers = [f"sampler{number}" for number in range(samplers)]
    possible = [
        *((kind, "engine") for kind in (*[Kind.KILL] * 4, Kind.TERM, Kind.TERM, Kind.STOP)),
        *((kind, "tools") for kind in (Kind.KILL, Kind.KILL, Kind.TERM, Kind.STOP)),
        *((kind, one) for kind in (Kind.KILL, Kind.TERM, Kind.STOP) for one in servers),
        *((kind, "consumer") for kind in (*[Kind.KILL] * 5, Kind.STOP)),
        *((kind, f"link {one}") for kind in LINK_KINDS for one in ("tools", "engine")),
        *((kind, f"link {one}") for kind in (*LINK_KINDS, Kind.HOLE) for one in servers),
        (Kind.FULL, "disk"), (Kind.FULL, "disk"), (Kind.CLOCK, "clock"),
    ]  # fmt: skip
    if workers > 1:
        possible += [(Kind.WORKER, "tools")] * 3
    if redis:
        possible += [(Kind.KILL, "redis"), (Kind.STOP, "redis")] * 2
    wanted, harms = dice.randint(*HARMS), list[Harm]()
    for _ in range(20):
        kind, target = dice.choice(possible)
        harm = Harm(
            kind=kind,
            target=target,
            at=dice.uniform(0.2, 1.5 + 1.5 * steps),
            seconds=dice.uniform(0.2, 2.5),
            amount=dice.choice((-86_400.0, -60.0, 60.0, 86_400.0)),
        )
        if not any(_too_close(harm, other) for other in harms):
            harms.append(harm)
        if len(harms) == wanted:
            break
    return tuple(sorted(harms, key=lambda one: one.at))


LINK_KINDS = (Kind.CUT, Kind.STALL, Kind.SLOW)
"""A half-open gRPC connection is found after 40 s (`toolwright.rpc.options`), too long for here."""


def _too_close(one: Harm, other: Harm) -> bool:
    first, second = sorted((one, other), key=lambda harm: harm.at)
    return one.target == other.target and second.at < first.at + first.seconds + REST_S
