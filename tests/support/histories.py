"""A valid history with kills, cut streams, retries, publishes and a rewind, made by hand.

Batch 2, group size 2, eta 1. What happens:

- g0 runs in life 0 without a fault; it is trained on in step 1 of lineage a.
- g1 runs over the kill of life 0. Member 0 goes on: its last action was not durable and is sampled
  anew. Member 1 starts again; its first attempt is given up.
- g2's first action is cut by the publish of a.1, and goes on under a.1 after a broken stream.
- The learner dies after step 2 and opens lineage b at a.1. g1 is offered again, g2 for the first
  time; g3 and g4 follow. g5 is discarded, g6 skipped, g7 offered and then dropped, g8 pending.
- An evaluation runs under a.0.
- g8-0 loses its session and is given up; g8-1 is in flight when the engine stops.
- The journal holds less of g1-0 than was appended when life 0 is killed. g9-0 has its score by
  then. The score of g7-0 masks it.
- Learner l1 claims the run, then l2. A request of l1 comes late and is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, TypeVar
from zlib import crc32

from msgspec.structs import replace as _replace

from bench.history.derived.contents import packed
from bench.history.events import (
    Abandoned,
    Acknowledged,
    Admitted,
    AnyEvent,
    Claimed,
    Dispatched,
    Effect,
    Evaluated,
    Fate,
    Fault,
    FaultEnded,
    FaultsOver,
    Finished,
    GivenUp,
    History,
    Journaled,
    LifeBegan,
    LifeEnded,
    Loaded,
    Member,
    Offered,
    Planned,
    Position,
    Published,
    Publishing,
    Restored,
    RewardCalled,
    RoomAgain,
    Sampled,
    Segment,
    SessionClosed,
    SessionOpened,
    SupersededRequest,
    Taken,
    Trained,
)
from toolwright.types import Ids, WeightVersion, ids

Kind = TypeVar("Kind")
SIZE = 2
TICK = 0.01
"""Seconds between two events."""

A0, A1, A2, B1, B2, B3 = (
    WeightVersion(lineage=lineage, step=step)
    for lineage, step in (("a", 0), ("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 3))
)
EVALUATED = "eb.1.held-0/b1p0t0a0"
"""An attempt of an evaluation at b.1."""
Part = tuple[WeightVersion, int, int]
"""Version of a request, ids that it brings, and how many of them the engine receives."""


class Attempt:
    """An attempt in progress: writes its events, and becomes a member."""

    def __init__(self, story: Story, name: str, *, life: int) -> None:
        self.name, self.life = name, life
        self._story = story
        self._turn = 0
        self._segments: list[Segment] = []
        self._calls: list[str] = []
        self._actions: list[str] = []
        self.session = f"owner/{name}@b{life}"
        story.add(SessionOpened(at=0, session=self.session))
        prompt = story.ids(5)
        self._segments.append(Segment(author="PROMPT", token_ids=prompt))

    @property
    def content(self) -> list[int]:
        return [token for segment in self._segments for token in segment.token_ids]

    def sample(self, *parts: Part) -> None:
        """One action of as many requests."""
        for version, offered, kept in parts:
            sent = self._story.ids(offered)
            self._story.add(
                Sampled(
                    at=0, attempt=self.name, server=f"s{self._turn % 2}", prompt=ids(self.content),
                    token_ids=sent, version=version, began=self._story.now,
                )
            )  # fmt: skip
            if not kept:
                continue
            last = self._segments[-1]
            if (last.author, last.turn, last.version) == ("MODEL", self._turn, version):
                whole = ids([*last.token_ids, *sent[:kept]])
                self._segments[-1] = _model(whole, self._turn, version)
            else:
                self._segments.append(_model(sent[:kept], self._turn, version))

    def call(self, *, calls: int = 1) -> None:
        """Dispatches calls, which take effect at once, and reads their answers."""
        answers: list[int] = []
        for number in range(calls):
            call_id = f"{self.name}/{self._turn}/{number}"
            action, answer = f"action {call_id}", self._story.ids(4)
            self._story.add(
                Dispatched(at=0, life=self.life, attempt=self.name, call_id=call_id),
                Effect(
                    at=0, session=self.session, call_id=call_id, action=action, answer=answer
                ),
                Taken(at=0, session=self.session, fence=1 + self.life, call_id=call_id),
            )  # fmt: skip
            self._calls.append(call_id)
            self._actions.append(action)
            answers += answer
        self._segments.append(Segment(author="TOOL", token_ids=ids(answers), turn=self._turn))
        self._turn += 1

    def forget(self, version: WeightVersion) -> None:
        """An action and the prompt after it that a kill takes: they are in no record."""
        kept = list(self._segments)
        self.sample((version, 6, 6))
        self._segments.append(Segment(author="TOOL", token_ids=self._story.ids(2)))
        self.sample((version, 3, 0))
        self._segments = kept

    def close(self) -> Member:
        """Closes the session."""
        self._story.add(SessionClosed(at=0, session=self.session, by_engine=True))
        return Member(
            trajectory=self.name.partition("/")[0],
            attempt=self.name,
            masked=False,
            calls=tuple(self._calls),
            actions=tuple(self._actions),
            segments=tuple(self._segments),
        )


class Story:
    """Events in order, each a tick after the one before."""

    def __init__(self) -> None:
        self.events: History = []
        self._token = 0

    @property
    def now(self) -> float:
        """Seconds of the latest event."""
        return len(self.events) * TICK

    def add(self, *events: AnyEvent) -> None:
        for event in events:
            self.events.append(replaced(event, at=(len(self.events) + 1) * TICK))

    def ids(self, count: int) -> Ids:
        """New token ids: no two of a history are equal."""
        self._token += count
        return ids(range(self._token - count, self._token))

    def attempt(self, name: str, *, life: int) -> Attempt:
        return Attempt(self, name, life=life)

    def plain(
        self, group: int, *, life: int, version: WeightVersion, turns: int = 1
    ) -> tuple[Member, ...]:
        """The members of a group without a fault: `turns` turns with a call, and a last one."""
        members = []
        for index in range(SIZE):
            one = self.attempt(f"g{group:07d}-{index}/b{life}r0a0", life=life)
            for _ in range(turns):
                one.sample((version, 7, 5))
                one.call()
            one.sample((version, 6, 6))
            members.append(one.close())
        return tuple(members)

    def offer(
        self, sequence: int, group: int, version: WeightVersion, members: Sequence[Member]
    ) -> None:
        text = hashlib.sha256(repr((sequence, members)).encode()).hexdigest()
        self.add(
            Offered(
                at=0, sequence=sequence, group=f"g{group:07d}", hash=text[:12],
                bytes_hash=text[12:24], version=version, members=tuple(members),
                stored_hash=f"stored {sequence}",
            )
        )  # fmt: skip

    def publish(
        self, version: WeightVersion, parent: WeightVersion | None = None, *, learner: str = "l1"
    ) -> None:
        self.add(Publishing(at=0, version=version, parent=parent, learner=learner))
        began = self.now
        self.add(
            Loaded(at=0, server="s0", version=version, began=began),
            Loaded(at=0, server="s1", version=version, began=began),
            Published(at=0, version=version),
        )


def replaced(event: Kind, **changes: object) -> Kind:
    """The event with other fields."""
    found: Kind = _replace(event, **changes)
    return found


def journaled(attempt: str, **fields: Any) -> Journaled:
    """An open log of six events that the journal holds whole."""
    usual = {"appended": 6, "kept": 6, "agreeing": 6, "due": 6, "open": True, "complete": False}
    return Journaled(at=0, attempt=attempt, **{**usual, **fields})


def valid_history(turns: int = 1) -> History:
    """The history that the module describes: no invariant is broken, each has evidence.

    turns: number of turns in which g4's members call a tool."""
    story = Story()
    planned = Planned(
        at=0, eta=1, batch=2, group_size=SIZE, steps=4, turns=2, lease_s=10.0, tools_patience=0.5,
        sampler_patience=0.5,
    )  # fmt: skip
    story.add(
        planned,
        LifeBegan(at=0, life=0),
        Claimed(at=0, learner="l1", version=A0),
        Loaded(at=0, server="s0", version=A0),
        Loaded(at=0, server="s1", version=A0),
        Admitted(at=0, step=0, accepted=0, running=2),
        Admitted(at=0, step=0, accepted=0, running=4),
    )
    g0 = story.plain(0, life=0, version=A0)
    first = story.attempt("g0000001-0/b0r0a0", life=0)
    lost = story.attempt("g0000001-1/b0r0a0", life=0)
    first.sample((A0, 5, 3), (A0, 4, 4))
    first.call(calls=2)
    lost.sample((A0, 4, 4))
    lost.call()
    story.add(Admitted(at=0, step=0, accepted=2, running=2))
    story.offer(1, 0, A0, g0)
    story.add(Trained(at=0, lineage="a", step=1, sequences=(1,)))
    first.forget(A0)
    story.add(
        RewardCalled(at=0, trajectory="g0000009-0", contents=9, alone=True, masks=False),
        Fault(at=0, kind="kill", detail="engine"),
        journaled(first.name, kept=4, agreeing=4, due=3),
        journaled("g0000009-0/b0r0a0", ended=True, scored=True),
        LifeEnded(at=0, life=0, killed=True),
        LifeBegan(at=0, life=1),
        Loaded(at=0, server="s0", version=A0),
        Loaded(at=0, server="s1", version=A0),
        SessionClosed(at=0, session=lost.session),
    )
    broken = story.attempt("g0000008-0/b1r0a0", life=1)
    broken.sample((A0, 3, 3))
    story.add(SessionClosed(at=0, session=broken.session), GivenUp(at=0, attempt=broken.name))
    first.life = 1
    first.sample((A0, 2, 2))
    again = story.attempt("g0000001-1/b1r0a0", life=1)
    again.sample((A0, 4, 4))
    again.call()
    again.sample((A0, 3, 3))
    g1 = first.close(), again.close()
    cut = story.attempt("g0000002-0/b1r0a0", life=1)
    whole = story.attempt("g0000002-1/b1r0a0", life=1)
    cut.sample((A0, 3, 3))
    story.add(Evaluated(at=0, suite="held", version=A0, rows=3, expected_rows=3, wrote=(A0,)))
    story.publish(A1)
    story.add(Admitted(at=0, step=1, accepted=4, running=2))
    cut.sample((A1, 4, 2), (A1, 5, 5))
    cut.call()
    cut.sample((A1, 2, 2))
    whole.sample((A1, 3, 3))
    g2 = replaced(cut.close(), turns=(f"action {cut.name}/0/0",)), whole.close()
    story.offer(2, 1, A1, g1)
    story.add(Trained(at=0, lineage="a", step=2, sequences=(2,)))
    story.publish(A2)
    g3 = story.plain(3, life=1, version=A2)
    story.add(
        Fault(at=0, kind="kill", detail="learner"),
        Claimed(at=0, learner="l2", version=A2),
        SupersededRequest(at=0, accepted=False),
        Restored(at=0, lineage="a", step=1),
    )
    story.add(Loaded(at=0, server="s1", version=A2, began=story.now))
    story.publish(B1, parent=A1, learner="l2")
    story.add(RoomAgain(at=0, seconds=1.5, full=False))
    story.attempt(EVALUATED, life=1).sample((B1, 3, 3))
    story.offer(2, 1, B1, g1)
    story.add(Trained(at=0, lineage="b", step=2, sequences=(2,)))
    story.publish(B2, learner="l2")
    story.offer(3, 2, B2, [without_loss(one, A0) for one in g2])
    story.add(
        Fault(at=0, kind="disk_full"),
        Acknowledged(at=0, mark=2),
        FaultEnded(at=0, kind="disk_full"),
    )
    g7 = story.plain(7, life=1, version=B2)
    g7 = (replaced(g7[0], masked=True), g7[1])
    contents = crc32(b"".join(packed(one.token_ids) for one in g7[0].segments))
    story.add(
        RewardCalled(at=0, trajectory="g0000007-0", contents=contents, alone=True, masks=True),
        Abandoned(at=0, server="s0", attempt=g7[1].attempt, aborted=True),
    )
    story.add(Trained(at=0, lineage="b", step=3, sequences=(3,)))
    story.publish(B3, learner="l2")
    story.add(Published(at=0, version=B3))
    g4 = story.plain(4, life=1, version=B3, turns=turns)
    going = story.attempt("g0000008-1/b1r0a0", life=1)
    going.sample((B3, 3, 3))
    story.offer(5, 4, B3, g4)
    story.offer(6, 7, B3, g7)
    story.offer(6, 7, B3, g7)
    story.add(
        Trained(at=0, lineage="b", step=4, sequences=(5,)),
        FaultsOver(at=0, bound=30.0),
        Acknowledged(at=0, mark=5),
        Acknowledged(at=0, mark=5),
        journaled(going.name),
        LifeEnded(at=0, life=1, killed=False),
        Finished(at=0, complete=True),
    )
    del g3
    made = (("b0r0a0",), ("b0r0a0", "b1r0a0"))
    fates: list[tuple[Fate, int | None, str]] = [
        (Fate.TRAINED, 1, ""), (Fate.TRAINED, 2, ""), (Fate.TRAINED, 3, ""),
        (Fate.DROPPED, 4, "stale"), (Fate.TRAINED, 5, ""), (Fate.TURNED_AWAY, 7, ""),
        (Fate.SKIPPED, None, "no question"), (Fate.DROPPED, 6, "stale"), (Fate.PENDING, None, ""),
    ]  # fmt: skip
    for position, (fate, sequence, reason) in enumerate(fates):
        group = f"g{position:07d}"
        attempts = tuple(
            tuple(f"{group}-{index}/{name}" for name in names) for index, names in enumerate(made)
        )
        story.add(
            Position(
                at=0, position=position, group=group, fate=fate, sequence=sequence, reason=reason,
                attempts=attempts if position == 1 else (),
            )
        )  # fmt: skip
    return story.events


def without_loss(member: Member, version: WeightVersion) -> Member:
    """The member as freshness sends it when a version is too old."""
    segments = tuple(
        replaced(one, trainable=False) if one.version == version else one for one in member.segments
    )
    return replaced(member, segments=segments)


def _model(token_ids: Ids, turn: int, version: WeightVersion) -> Segment:
    return Segment(author="MODEL", token_ids=token_ids, turn=turn, version=version, trainable=True)
