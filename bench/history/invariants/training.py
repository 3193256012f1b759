"""What the learner trained on, and how every position of the task source ended."""

from __future__ import annotations

from collections.abc import Mapping

from bench.history.events import Fate, Finished, Offered, Planned, Position, Restored, Seen, Trained
from bench.history.findings import Findings, Handler, Invariant, Judge

TRAINED_ONCE = Invariant(
    name="trained_once",
    promise="In the lineage of the surviving weights a group is trained on at most once.",
    source="ARCHITECTURE.md, Each group once, in the weights that survive",
)
ONE_FATE = Invariant(
    name="one_fate_a_position",
    promise="Every position has one fate, one group and at most one number.",
    source="engine/serving/admission/train.py; engine/serving/journal/groups.py",
)
FATES_HOLD = Invariant(
    name="fates_hold",
    promise="The journal's fate of a position is what the learner saw of it: trained, dropped with "
    "a reason, discarded, skipped with a reason, or pending.",
    source="engine/serving/journal/groups.py; engine/serving/delivery/delivery.py",
)
NOTHING_LOST = Invariant(
    name="nothing_lost",
    promise="Every offered group has a position, and a complete run leaves no position out.",
    source="ARCHITECTURE.md, Where state lives, and what happens when something dies",
)
LAST_ATTEMPT = Invariant(
    name="last_attempt_counts",
    promise="The record is the last attempt's: no finished member runs again.",
    source="engine/serving/crew/in_process.py",
)


class Training(Judge):
    invariants = (TRAINED_ONCE, ONE_FATE, FATES_HOLD, NOTHING_LOST, LAST_ATTEMPT)

    def __init__(self, planned: Planned, findings: Findings) -> None:
        super().__init__(planned, findings)
        self._steps: list[tuple[int, tuple[int, ...]]] = []
        """Steps of the surviving lineage, with the numbers that they trained on."""
        self._trained: dict[int, int] = {}
        """Number to step, in the surviving lineage."""
        self._offered: dict[int, tuple[int, str]] = {}
        self._attempts: dict[str, tuple[str, ...]] = {}
        self._positions: dict[int, int] = {}
        self._groups: dict[str, int] = {}
        self._numbers: dict[int, int] = {}
        self._complete = False

    def handlers(self) -> Mapping[type[Seen], Handler]:
        return {
            Trained: self._train,
            Restored: self._restored,
            Offered: self._offer,
            Position: self._position,
            Finished: self._finished,
        }

    def _train(self, index: int, event: Trained) -> None:
        self.findings.judged(TRAINED_ONCE)
        for number in event.sequences:
            step = self._trained.get(number)
            if step is not None:
                self.findings.breaks(
                    TRAINED_ONCE,
                    index,
                    f"step {event.step} of {event.lineage} trains on number {number}, which step "
                    f"{step} of the surviving lineage trained on",
                    f"sequence {number}",
                    self._offered.get(number, (0, ""))[1],
                )
            self._trained.setdefault(number, event.step)
        self._steps.append((event.step, event.sequences))

    def _restored(self, _index: int, event: Restored) -> None:
        while self._steps and self._steps[-1][0] > event.step:
            _step, numbers = self._steps.pop()
            for number in numbers:
                self._trained.pop(number, None)

    def _offer(self, index: int, event: Offered) -> None:
        self._offered.setdefault(event.sequence, (index, event.group))
        self._attempts.setdefault(event.group, tuple(m.attempt for m in event.members))

    def _finished(self, _index: int, event: Finished) -> None:
        self._complete = event.complete

    def _position(self, index: int, event: Position) -> None:
        self._is_single(index, event)
        self._is_true(index, event)
        self._is_last(index, event)

    def _is_single(self, index: int, event: Position) -> None:
        found, position = self.findings, event.position
        found.judged(ONE_FATE)
        wrong = ""
        if position in self._positions:
            wrong = "has two fates"
        elif self._groups.get(event.group, position) != position:
            wrong = f"has {event.group}, the group of position {self._groups[event.group]}"
        elif event.sequence is not None:
            other = self._numbers.setdefault(event.sequence, position)
            if other != position:
                wrong = f"has number {event.sequence}, the number of position {other}"
        if wrong:
            found.breaks(ONE_FATE, index, f"position {position} {wrong}", *_about(event))
        self._positions.setdefault(position, index)
        if event.group:
            self._groups.setdefault(event.group, position)

    def _is_true(self, index: int, event: Position) -> None:
        self.findings.judged(FATES_HOLD)
        wrong = self._untruth(event)
        if wrong:
            self.findings.breaks(
                FATES_HOLD,
                index,
                f"position {event.position} ({event.group}) is {event.fate.value}, but {wrong}",
                *_about(event),
            )

    def _untruth(self, event: Position) -> str:
        """Why the fate cannot be; "" where it can."""
        number = event.sequence
        offered = None if number is None else self._offered.get(number)
        if offered is not None and offered[1] != event.group:
            return f"number {number} was offered as {offered[1]}"
        step = None if number is None else self._trained.get(number)
        match event.fate:
            case Fate.TRAINED if offered is None:
                return "it was never offered"
            case Fate.TRAINED if step is None:
                return "no step of the surviving lineage trained on it"
            case Fate.DROPPED | Fate.SKIPPED if not event.reason:
                return "it has no reason"
            case Fate.TURNED_AWAY | Fate.SKIPPED if offered is not None:
                return f"it was offered as number {number}"
            case Fate.SKIPPED if number is not None:
                return f"it has number {number}"
        if event.fate is not Fate.TRAINED and step is not None:
            return f"step {step} of the surviving lineage trained on it"
        return ""

    def _is_last(self, index: int, event: Position) -> None:
        recorded = self._attempts.get(event.group, ())
        for attempt, made in zip(recorded, event.attempts, strict=False):
            if not (attempt and made):
                continue
            self.findings.judged(LAST_ATTEMPT)
            if made[-1] != attempt:
                self.findings.breaks(
                    LAST_ATTEMPT,
                    index,
                    f"the record is of {attempt}, and {made[-1]} was made after it",
                    event.group,
                    attempt,
                    made[-1],
                )

    def finish(self, last: int) -> None:
        if not self._positions:
            return
        self.findings.judged(NOTHING_LOST)
        for number, (_index, group) in self._offered.items():
            if group not in self._groups:
                self.findings.breaks(
                    NOTHING_LOST,
                    last,
                    f"{group} was offered as number {number}, and no position has that group",
                    group,
                    f"sequence {number}",
                )
        if self._complete:
            gap = next((p for p in range(max(self._positions)) if p not in self._positions), None)
            if gap is not None:
                self.findings.breaks(
                    NOTHING_LOST,
                    last,
                    f"position {gap} has no fate, and position {max(self._positions)} has one",
                    f"g{gap:07d}",
                )


def _about(event: Position) -> tuple[str, ...]:
    number = () if event.sequence is None else (f"sequence {event.sequence}",)
    return event.group, *number
