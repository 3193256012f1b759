"""Effects of calls on the tool host: at most once, in order, in sessions that are open."""

from __future__ import annotations

from collections.abc import Mapping

from bench.history.events import (
    Effect,
    Member,
    Offered,
    Planned,
    Seen,
    SessionClosed,
    SessionOpened,
)
from bench.history.findings import Findings, Handler, Invariant, Judge
from bench.history.names import CallName, call_name

EFFECT_ONCE = Invariant(
    name="effect_once",
    promise="A call takes effect at most once in a session.",
    source="ARCHITECTURE.md, Rules on the wire, 2; toolsvc/host/ledger.py",
)
ONE_SESSION = Invariant(
    name="one_session_an_attempt",
    promise="All effects of an attempt whose tools keep state are in one session, opened once.",
    source="engine/core/rollout/attempt_start.py; ARCHITECTURE.md, what events fold to",
)
TURNS_ORDERED = Invariant(
    name="effects_in_turn_order",
    promise="A session runs no call of a turn below one that it has begun.",
    source="toolsvc/host/ledger.py: a call of turn t acknowledges all results below t",
)
SESSION_OPEN = Invariant(
    name="effects_in_open_sessions",
    promise="A call takes effect only while its session is open.",
    source="toolsvc/host/sessions.py",
)
CALLS_ORDERED = Invariant(
    name="calls_in_order",
    promise="The calls of a record are its attempt's, turn after turn, and numbered from 0 in a "
    "turn without a gap.",
    source="engine/core/trajectory/state.py",
)
RECORDED = Invariant(
    name="effects_are_recorded",
    promise="The session of a recorded attempt ran no action that the record lacks, where tools "
    "keep state.",
    source="engine/core/rollout/attempt_start.py: a session that ran an unknown call is given up",
)
TURNS_BOUNDED = Invariant(
    name="turns_are_bounded",
    promise="A trajectory makes calls in at most `limits.turns` turns.",
    source="engine/core/rollout/decide.py",
)


class Effects(Judge):
    invariants = (
        EFFECT_ONCE, ONE_SESSION, TURNS_ORDERED, SESSION_OPEN, CALLS_ORDERED, RECORDED,
        TURNS_BOUNDED,
    )  # fmt: skip

    def __init__(self, planned: Planned, findings: Findings) -> None:
        super().__init__(planned, findings)
        self._ran: dict[tuple[str, str], int] = {}
        self._opened: dict[str, int] = {}
        """Session to how often it was opened."""
        self._closed: set[str] = set()
        self._homes: dict[str, tuple[str, int]] = {}
        """Attempt to the session of its first effect, and which opening of it."""
        self._turns: dict[str, int] = {}
        self._checked: set[str] = set()
        self._acted: dict[str, list[tuple[int, int, Effect]]] = {}
        """Attempt to its effects: index, turn, event."""
        self._members: list[Member] = []

    def handlers(self) -> Mapping[type[Seen], Handler]:
        return {
            SessionOpened: self._open,
            SessionClosed: self._close,
            Effect: self._effect,
            Offered: self._offered,
        }

    def _open(self, _index: int, event: SessionOpened) -> None:
        first = event.session not in self._opened
        if first or event.session in self._closed:  # else the request to open it came twice
            self._opened[event.session] = self._opened.get(event.session, 0) + 1
            self._turns.pop(event.session, None)
        self._closed.discard(event.session)

    def _close(self, _index: int, event: SessionClosed) -> None:
        self._closed.add(event.session)

    def _effect(self, index: int, event: Effect) -> None:
        found, session, call = self.findings, event.session, call_name(event.call_id)
        about = call.attempt, session
        self._acted.setdefault(call.attempt, []).append((index, call.turn, event))
        found.judged(EFFECT_ONCE)
        ran = self._opened.get(session, 0)
        if self._ran.setdefault((session, event.call_id), index) != index:
            found.breaks(
                EFFECT_ONCE, index, f"{event.call_id} ran twice in session {session}", *about
            )
        if self._opened:
            found.judged(SESSION_OPEN)
            if not ran or session in self._closed:
                state = "closed" if ran else "never opened"
                found.breaks(
                    SESSION_OPEN,
                    index,
                    f"{event.call_id} ran in session {session}, which was {state}",
                    *about,
                )
        if self.planned.stateful:
            found.judged(ONE_SESSION)
            home = session.rstrip("~"), ran
            known = self._homes.setdefault(call.attempt, home)
            if known != home:
                found.breaks(
                    ONE_SESSION,
                    index,
                    f"{event.call_id} ran in opening {ran} of session {session}; an earlier call "
                    f"of the attempt ran in opening {known[1]} of {known[0]}",
                    *about,
                    known[0],
                )
        found.judged(TURNS_ORDERED)
        latest = self._turns.get(session, 0)
        if call.turn < latest:
            found.breaks(
                TURNS_ORDERED,
                index,
                f"{event.call_id} ran in session {session} after a call of turn {latest}",
                *about,
            )
        self._turns[session] = max(latest, call.turn)

    def _offered(self, index: int, event: Offered) -> None:
        if event.group in self._checked:
            return
        self._checked.add(event.group)
        self._members += event.members
        for member in event.members:
            if not member.calls:
                continue
            self.findings.judged(CALLS_ORDERED)
            names = [call_name(call_id) for call_id in member.calls]
            if self.planned.turns:
                self._bounded(index, event.group, member, names)
            wrong = _disorder(names, member.attempt, is_branch=bool(member.parent))
            if wrong:
                self.findings.breaks(
                    CALLS_ORDERED,
                    index,
                    f"the record of {member.trajectory} {wrong}",
                    event.group,
                    member.attempt or member.trajectory,
                )

    def _bounded(self, index: int, group: str, member: Member, names: list[CallName]) -> None:
        self.findings.judged(TURNS_BOUNDED)
        latest = max(name.turn for name in names)
        if latest >= self.planned.turns:
            self.findings.breaks(
                TURNS_BOUNDED,
                index,
                f"{member.trajectory} calls a tool in turn {latest}; the limit is "
                f"{self.planned.turns} turns, from 0",
                group,
                member.attempt or member.trajectory,
            )

    def finish(self, last: int) -> None:
        if not self.planned.stateful:
            return  # a session that is lost gives way to another one of the same attempt
        for member in self._members:
            for index, turn, effect in self._acted.get(member.attempt, ()) if member.turns else ():
                self.findings.judged(RECORDED)
                if turn < len(member.turns) and effect.action in member.turns[turn]:
                    continue
                self.findings.breaks(
                    RECORDED,
                    index,
                    f"{effect.call_id} ran {effect.action[:60]!r} in session {effect.session}; the "
                    f"record of {member.attempt} has no such action in turn {turn}",
                    member.attempt,
                    effect.session,
                )


def _disorder(names: list[CallName], attempt: str, *, is_branch: bool) -> str:
    """What is wrong with the calls of a record; "" if nothing is. A branch begins with calls of its
    parents."""
    indexes: dict[int, set[int]] = {}
    latest, own = 0, not is_branch
    for name in names:
        own = own or name.attempt == attempt
        if attempt and own and name.attempt != attempt:
            return f"is {attempt}'s and holds a call of {name.attempt}"
        if name.turn < latest:
            return f"holds a call of turn {name.turn} after one of turn {latest}"
        latest = name.turn
        of_turn = indexes.setdefault(name.turn, set())
        if name.number in of_turn:
            return f"holds call {name.turn}/{name.number} twice"
        of_turn.add(name.number)
    for turn, found in indexes.items():
        if max(found) != len(found) - 1:
            return f"holds {sorted(found)} of turn {turn}'s calls"
    return ""
