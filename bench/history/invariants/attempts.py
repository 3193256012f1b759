"""Reasons for giving up attempts, as seen by the tool host, the samplers and the journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from bench.history.events import (
    Fate,
    Fault,
    FaultEnded,
    GivenUp,
    LifeBegan,
    Loaded,
    Planned,
    Position,
    Sampled,
    Seen,
    SessionClosed,
    SessionOpened,
)
from bench.history.findings import Findings, Handler, Invariant, Judge
from bench.history.names import attempt_of_session, group_of
from toolwright.types import WeightVersion

REASON = Invariant(
    name="attempts_end_for_a_reason",
    promise="An attempt is given up only after its session was closed, or after its tool service "
    "was unreachable, or no token came, for the engine's patience.",
    source="engine/core/rollout/attempts.py; engine/core/tools/link/retry_policy.py; "
    "engine/core/sampler/retry.py",
)
GIVEN_UP_ONCE = Invariant(
    name="attempts_are_given_up_once",
    promise="A life gives up an attempt once, so no name of an attempt is used again.",
    source="engine/serving/crew/in_process.py; engine/core/rollout/attempts.py",
)
TOOL_OUTAGES = ("host_kill", "tools_cut", "tools_hang", "answers_lost")
"""Faults that keep the tool service away while they last."""
NOTICED_S = 5.0
"""Time after an outage in which the engine may still notice it: a retry was on its way."""
LEAST_SHARE = 0.8
"""Share of the patience that explains the end: the engine notices a fault later than it begins."""


class Attempts(Judge):
    """Judges attempts that began in the life that gives them up."""

    invariants = (REASON, GIVEN_UP_ONCE)

    def __init__(self, planned: Planned, findings: Findings) -> None:
        super().__init__(planned, findings)
        self._born: dict[str, float] = {}
        """Attempts of this life, and when each was first seen."""
        self._lost: set[str] = set()
        self._over: set[str] = set()
        """Attempts that this life gave up."""
        self._token: dict[str, float] = {}
        """Attempt to the begin of its latest stream with tokens that count: the history does not
        say when the last of them left."""
        self._loaded: dict[str, WeightVersion] = {}
        """Server to the weights that it took last. The engine drops tokens of others."""
        self._away: Counter[str] = Counter()
        self._away_since = 0.0
        self._away_before = (-1e9, -1e9)
        """Begin and end of the latest time in which the tool service was away."""
        self._unexplained: list[tuple[int, str, str]] = []
        self._skipped: set[str] = set()

    def handlers(self) -> Mapping[type[Seen], Handler]:
        return {
            LifeBegan: self._began,
            Fault: self._fault,
            FaultEnded: self._fault_ended,
            SessionOpened: self._opened,
            SessionClosed: self._closed,
            Loaded: self._load,
            Sampled: self._sampled,
            GivenUp: self._given_up,
            Position: self._position,
        }

    def _began(self, _index: int, _event: LifeBegan) -> None:
        self._born.clear()
        self._token.clear()
        self._lost.clear()
        self._over.clear()

    def _fault(self, _index: int, event: Fault) -> None:
        if event.kind in TOOL_OUTAGES:
            begin, end = self._away_before
            if not self._away.total():  # for the engine, outages close together are one
                self._away_since = begin if event.at - end <= NOTICED_S else event.at
            self._away[event.kind] += 1

    def _fault_ended(self, _index: int, event: FaultEnded) -> None:
        if event.kind in TOOL_OUTAGES:
            self._away[event.kind] -= 1
            if not self._away.total():
                self._away_before = self._away_since, event.at

    def _opened(self, _index: int, event: SessionOpened) -> None:
        attempt = attempt_of_session(event.session)
        self._born.setdefault(attempt, event.at)
        self._lost.discard(attempt)

    def _closed(self, _index: int, event: SessionClosed) -> None:
        self._lost.add(attempt_of_session(event.session))

    def _sampled(self, _index: int, event: Sampled) -> None:
        if event.token_ids and self._loaded.get(event.server) == event.version:
            self._token[event.attempt] = event.at if event.began is None else event.began

    def _load(self, _index: int, event: Loaded) -> None:
        self._loaded[event.server] = event.version

    def _given_up(self, index: int, event: GivenUp) -> None:
        attempt, planned = event.attempt, self.planned
        self.findings.judged(GIVEN_UP_ONCE)
        if attempt in self._over:
            self.findings.breaks(GIVEN_UP_ONCE, index, f"{attempt} was given up twice", attempt)
        self._over.add(attempt)
        born = self._born.get(attempt)
        if born is None or not planned.sampler_patience:
            return
        self.findings.judged(REASON)
        silent = event.at - max(born, self._token.get(attempt, 0.0))
        if attempt in self._lost or silent >= LEAST_SHARE * planned.sampler_patience:
            return
        begin, end = self._away_before
        if self._away.total():
            begin, end = self._away_since, event.at
        if end - begin >= LEAST_SHARE * planned.tools_patience and event.at - end <= NOTICED_S:
            return
        message = (
            f"{attempt} was given up {silent:.3f} s after its latest stream with tokens began; its "
            f"session is open, and its tools were away for {end - begin:.3f} s at most"
        )
        self._unexplained.append((index, attempt, message))

    def _position(self, _index: int, event: Position) -> None:
        if event.fate is Fate.SKIPPED:
            self._skipped.add(event.group)

    def finish(self, last: int) -> None:
        for index, attempt, message in self._unexplained:
            if group_of(attempt) not in self._skipped:
                self.findings.breaks(REASON, index, message, attempt)
