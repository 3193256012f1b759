"""Lives of the engine and what they hand to the channels of tool services."""

from __future__ import annotations

from collections.abc import Mapping

from bench.history.events import (
    Dispatched,
    LifeBegan,
    LifeEnded,
    Planned,
    Seen,
    SessionClosed,
    SessionOpened,
    Taken,
)
from bench.history.findings import Findings, Handler, Invariant, Judge
from bench.history.names import attempt_of_session

FENCED = Invariant(
    name="no_dispatch_after_a_life",
    promise="A life dispatches nothing before it began or after its end.",
    source="engine/core/rollout/loop.py; engine/serving/journal/schema.py, the lock of one engine",
)
ONE_WORKER = Invariant(
    name="one_life_an_attempt",
    promise="Another life goes on with an attempt only after the life before has ended.",
    source="engine/serving/journal/schema.py; engine/core/rollout/attempts.py",
)
NOT_AFTER_CLOSE = Invariant(
    name="no_dispatch_after_close",
    promise="Nothing is dispatched for an attempt after the engine closed its session.",
    source="engine/core/rollout/loop.py",
)
NOT_BELOW_FENCE = Invariant(
    name="no_call_below_a_fence",
    promise="A session takes no call of an earlier holder once a later one has come.",
    source="toolsvc/host/open_session.py; proto/toolwright/tool/v1/tool.proto, CallToolRequest",
)


class Workers(Judge):
    invariants = (FENCED, ONE_WORKER, NOT_AFTER_CLOSE, NOT_BELOW_FENCE)

    def __init__(self, planned: Planned, findings: Findings) -> None:
        super().__init__(planned, findings)
        self._alive: set[int] = set()
        self._seen_lives = False
        self._worker: dict[str, int] = {}
        self._open: dict[str, set[str]] = {}
        """Attempt to its open sessions."""
        self._shut: dict[str, str] = {}
        """Attempt to its newest session, once the engine has closed that one."""
        self._newest: dict[str, str] = {}
        """Attempt to its newest session. The close of an older one says nothing of later calls."""

        self._fences: dict[str, int] = {}
        """Session to the highest fence that came for it."""

    def handlers(self) -> Mapping[type[Seen], Handler]:
        return {
            LifeBegan: self._began,
            LifeEnded: self._ended,
            SessionOpened: self._opened,
            SessionClosed: self._closed,
            Dispatched: self._dispatched,
            Taken: self._taken,
        }

    def _began(self, _index: int, event: LifeBegan) -> None:
        self._seen_lives = True
        self._alive.add(event.life)

    def _ended(self, _index: int, event: LifeEnded) -> None:
        self._alive.discard(event.life)

    def _opened(self, _index: int, event: SessionOpened) -> None:
        attempt = attempt_of_session(event.session)
        self._open.setdefault(attempt, set()).add(event.session)
        self._newest[attempt] = event.session
        self._shut.pop(attempt, None)

    def _closed(self, _index: int, event: SessionClosed) -> None:
        attempt = attempt_of_session(event.session)
        self._open.get(attempt, set()).discard(event.session)
        if event.by_engine and self._newest.get(attempt, event.session) == event.session:
            self._shut[attempt] = event.session

    def _taken(self, index: int, event: Taken) -> None:
        self.findings.judged(NOT_BELOW_FENCE)
        highest = self._fences.get(event.session, 0)
        if event.fence < highest:
            self.findings.breaks(
                NOT_BELOW_FENCE,
                index,
                f"session {event.session} took {event.call_id or 'a look'} with fence "
                f"{event.fence}, after fence {highest}",
                attempt_of_session(event.session),
                event.session,
            )
        self._fences[event.session] = max(highest, event.fence)

    def _dispatched(self, index: int, event: Dispatched) -> None:
        found, attempt = self.findings, event.attempt
        if self._seen_lives:
            found.judged(FENCED)
            if event.life not in self._alive:
                found.breaks(
                    FENCED,
                    index,
                    f"life {event.life} dispatched {event.call_id}, and does not live",
                    attempt,
                )
            found.judged(ONE_WORKER)
            worker = self._worker.get(attempt, event.life)
            if worker != event.life and worker in self._alive:
                found.breaks(
                    ONE_WORKER,
                    index,
                    f"life {event.life} dispatched {event.call_id}, and life {worker}, which "
                    f"lives, runs {attempt}",
                    attempt,
                )
        self._worker[attempt] = event.life
        session = self._shut.get(attempt)
        if session is not None:
            found.judged(NOT_AFTER_CLOSE)
        if session is not None and not self._open.get(attempt):
            found.breaks(
                NOT_AFTER_CLOSE,
                index,
                f"{event.call_id} was dispatched after the engine closed session {session}",
                attempt,
                session,
            )

    def finish(self, last: int) -> None:
        if self._shut and self._worker:
            self.findings.judged(NOT_AFTER_CLOSE)
