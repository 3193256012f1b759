"""The events of a history: what sampler, tool host, learner and harness saw of one run.

A history is a list of events in the order of one clock. The engine under test writes none of
them, except where a field says so: its neighbours are the witnesses.

Invariants
- `at` is seconds on the harness's clock and never falls from one event to the next.
- Names are the product's own: an attempt is TRAJECTORY/NAME, a call id ATTEMPT/TURN/INDEX.
- An observer that cannot see a thing writes no event. The validator lists what it could not judge.
"""

from __future__ import annotations

from enum import StrEnum, auto

import msgspec

from toolwright.types import Ids, WeightVersion


class Seen(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Base of all events. at: seconds on the harness's clock."""

    at: float


# ---- the harness ----


class Planned(Seen, frozen=True, kw_only=True):
    """First event: the numbers that the promises depend on. batch = groups a step x group size."""

    eta: int
    batch: int
    group_size: int
    steps: int
    stateful: bool = True
    """Tools keep state: one session an attempt, and no effect twice in a session."""
    turns: int = 0
    """Most turns of a trajectory in which it calls tools; 0 = unknown."""
    lease_s: float = 0.0
    """Length of a session's lease, in seconds; 0 = unknown."""
    tools_patience: float = 0.0
    """Longest time to wait for a tool service, in seconds; 0 = unknown."""
    sampler_patience: float = 0.0
    """Longest time without a token, in seconds; 0 = unknown."""


class LifeBegan(Seen, frozen=True, kw_only=True):
    """An engine process (or its simulated life) started; lives count from 0."""

    life: int


class LifeEnded(Seen, frozen=True, kw_only=True):
    """The life is over. killed: without a word, so that its last appends may be lost."""

    life: int
    killed: bool


class WorkerEnded(Seen, frozen=True, kw_only=True):
    """A worker of the present life is gone. Its last reports may be lost."""

    worker: str


class Fault(Seen, frozen=True, kw_only=True):
    """A fault was injected. kind: its name; detail: its target and its duration."""

    kind: str
    detail: str = ""


class FaultEnded(Seen, frozen=True, kw_only=True):
    """A fault ended, at once or after its duration."""

    kind: str


class FaultsOver(Seen, frozen=True, kw_only=True):
    """No further fault comes: from here the run must end within the bound, in seconds."""

    bound: float


class Finished(Seen, frozen=True, kw_only=True):
    """What is still held after the engine's end, by the owners' own counts. Only events that are
    read from the run folder may follow."""

    complete: bool
    """The learner has all groups that it wanted."""
    sessions: int = 0
    """Open on the tool host."""
    requests: int = 0
    """In flight at the samplers."""
    places: int = 0
    tasks: int = 0
    """asyncio tasks that outlived the engine; simulation only."""


# ---- the journal's disk ----


class Journaled(Seen, frozen=True, kw_only=True):
    """At the end of a life: what the journal holds of one attempt."""

    attempt: str
    appended: int
    """Number of events that the engine appended, without those that an earlier life lost."""
    kept: int
    """Number of events that the journal holds."""
    agreeing: int
    """Length of the common prefix of appended and kept events."""
    due: int
    """Number of events that had to be durable by now."""
    open: bool
    """A later life may go on with it."""
    complete: bool
    """The journal has its group."""
    ended: bool = False
    """The kept events hold the trajectory's end."""
    scored: bool = False
    """The kept events hold the reward function's score."""
    given_up: bool = False
    """The engine gave the attempt up, and the journal does not have that."""


class RoomAgain(Seen, frozen=True, kw_only=True):
    """The disk was full, and has room again."""

    seconds: float
    """Time since then."""
    full: bool
    """The engine's own word: it still waits for room."""


class GivenUp(Seen, frozen=True, kw_only=True):
    """The engine gave up an attempt: no life continues it."""

    attempt: str


# ---- the sampler ----


class Sampled(Seen, frozen=True, kw_only=True):
    """One request and what the server sent for it, seen when its stream ended or broke.

    prompt: ids of the request. token_ids: ids that were sent, or offered where the observer cannot
    know how many left (`exact` is false then). version: the server's own weights. A request that
    went on under new weights is one event a version; the later prompt holds the ids sent before.
    attempt: "" where the observer does not know it. began: when the request arrived; an observer
    of several lives or publishes sets it, because `at` may lie after the next request. worker: name
    of the engine's worker that sent it; "" = the engine.
    """

    attempt: str
    server: str
    prompt: Ids
    token_ids: Ids
    version: WeightVersion
    exact: bool = True
    began: float | None = None
    worker: str = ""


class Loaded(Seen, frozen=True, kw_only=True):
    """A server took weights. began: when the engine began to change them, None = unknown."""

    server: str
    version: WeightVersion
    began: float | None = None


class Abandoned(Seen, frozen=True, kw_only=True):
    """The engine left a request, or its stream broke, while engine and server lived on."""

    server: str
    attempt: str
    aborted: bool
    """The engine sent an abort of the request."""


# ---- the reward function ----


class RewardCalled(Seen, frozen=True, kw_only=True):
    """The reward function was called with a trajectory."""

    trajectory: str
    contents: int
    """`checksum` of its token ids."""
    alone: bool
    """The function got this trajectory without its group."""
    masks: bool
    """The score takes the trajectory out of the loss."""


# ---- the tool host ----


class SessionOpened(Seen, frozen=True, kw_only=True):
    session: str


class SessionClosed(Seen, frozen=True, kw_only=True):
    """Closed, reaped, or lost with its host. by_engine: a request to close it arrived. Of other
    ends the engine may not know yet."""

    session: str
    by_engine: bool = False


class Effect(Seen, frozen=True, kw_only=True):
    """The tool began to run a call. answer: ids of the observation that it will give, as the
    record should show them; None where the observer does not know."""

    session: str
    call_id: str
    action: str
    answer: Ids | None = None


class Taken(Seen, frozen=True, kw_only=True):
    """The tool host took a request with a fence. call_id: "" = it looked at the session."""

    session: str
    fence: int
    call_id: str = ""


# ---- the engine, as its status or the simulator's eyes show it ----


class Admitted(Seen, frozen=True, kw_only=True):
    """After an admission or any change: the numbers of the staleness bound at this instant.

    step: newest published optimizer step. accepted, running: trajectories.
    """

    step: int
    accepted: int
    running: int


class Dispatched(Seen, frozen=True, kw_only=True):
    """A life handed a call to the channel."""

    life: int
    attempt: str
    call_id: str


# ---- the learner ----


class Segment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run of tokens of a record. author: name of `Author`."""

    author: str
    token_ids: Ids
    turn: int = 0
    version: WeightVersion | None = None
    trainable: bool = False


class Member(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One trajectory of a group as it was delivered; segments of its only sequence."""

    trajectory: str
    attempt: str
    """TRAJECTORY/NAME; "" where the observer does not know it."""
    masked: bool
    calls: tuple[str, ...]
    """Ids of the calls that the record holds, in the record's order."""
    segments: tuple[Segment, ...]
    actions: tuple[str, ...] = ()
    """Texts of these calls' actions; empty where the observer does not know them."""
    turns: tuple[str, ...] = ()
    """What the policy wrote, a text a turn; empty where the observer cannot decode it."""
    errored: bool = False
    """Whether the engine's record says that infrastructure ended it."""
    parent: str = ""
    """Trajectory that a branch began as; its attempt where that was given up. "" = no branch."""
    shared: int = 0
    """Tokens at the start that a branch shares with its parent, calls and answers included."""


class Offered(Seen, frozen=True, kw_only=True):
    """A group arrived at the learner. hash: the engine's; bytes_hash: of the messages as they came;
    stored_hash: of the group as journaled, which freshness does not change ("" if unknown)."""

    sequence: int
    group: str
    hash: str
    bytes_hash: str
    version: WeightVersion
    """The version that the lease named: the weights that will train on it."""
    members: tuple[Member, ...]
    stored_hash: str = ""


class Trained(Seen, frozen=True, kw_only=True):
    """The learner made a step of these groups. step: the one that it makes, from 1."""

    lineage: str
    step: int
    sequences: tuple[int, ...]


class Acknowledged(Seen, frozen=True, kw_only=True):
    """The learner acknowledged every group up to the mark; the engine may forget them."""

    mark: int


class Publishing(Seen, frozen=True, kw_only=True):
    """The learner called PublishWeights: from here servers may take the version. parent: the
    version that a new lineage left."""

    version: WeightVersion
    parent: WeightVersion | None = None
    learner: str = ""
    """Name of the learner's life; "" = unknown."""


class Claimed(Seen, frozen=True, kw_only=True):
    """A life of the learner claimed the run. version: the newest one, as the engine answered."""

    learner: str
    version: WeightVersion


class Published(Seen, frozen=True, kw_only=True):
    """PublishWeights answered OK."""

    version: WeightVersion


class LearnerRefused(Seen, frozen=True, kw_only=True):
    """The engine refused a request of the learner."""

    method: str
    reason: str
    """Name of the reason in reasons.proto."""
    version: WeightVersion | None = None
    """Version of a publish; None for other methods."""


class SupersededRequest(Seen, frozen=True, kw_only=True):
    """A learner sent an acknowledgement after another learner had claimed the run."""

    accepted: bool


class Restored(Seen, frozen=True, kw_only=True):
    """The learner died and began again at a checkpoint: later steps count from this one.

    lineage and step: the checkpoint's version, which the lineage that opens next leaves.
    """

    lineage: str
    step: int


class Evaluated(Seen, frozen=True, kw_only=True):
    """A finished evaluation as the run folder has it. wrote: the versions of its rows' tokens."""

    suite: str
    version: WeightVersion
    rows: int
    expected_rows: int
    wrote: tuple[WeightVersion, ...]
    cut: bool = False
    """It has fewer rows than its suite. Only new weights may cut it."""


# ---- the journal, read after the end ----


class Fate(StrEnum):
    """How a position of the task source ended."""

    TRAINED = auto()
    """Offered, and in a step of the surviving lineage."""
    DROPPED = auto()
    """Offered until nothing in it was fresh enough."""
    TURNED_AWAY = auto()
    """Never offered: no signal."""
    SKIPPED = auto()
    """Its task cannot be run."""
    PENDING = auto()
    """Journaled or in flight; a later life goes on with it."""


class Position(Seen, frozen=True, kw_only=True):
    """The journal's word on one admitted position; after `Finished`'s engine has ended.

    reason: of a dropped or skipped one. attempts: all attempts' names in the order of their
    making, by member index.
    """

    position: int
    group: str
    fate: Fate
    sequence: int | None = None
    reason: str = ""
    attempts: tuple[tuple[str, ...], ...] = ()


AnyEvent = (
    Planned | LifeBegan | LifeEnded | WorkerEnded | Fault | FaultEnded | FaultsOver | Finished
    | Journaled | RoomAgain | GivenUp | Sampled | Loaded | Abandoned | RewardCalled | SessionOpened
    | SessionClosed | Effect | Taken | Admitted | Dispatched | Offered | Trained | Acknowledged
    | Publishing | Claimed | Published | LearnerRefused | SupersededRequest | Restored
    | Evaluated | Position
)  # fmt: skip
History = list[AnyEvent]
