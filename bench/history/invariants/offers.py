"""Groups as they are offered: numbers, bytes, members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.history.derived.contents import content_of
from bench.history.events import Acknowledged, Offered, Planned, Seen
from bench.history.findings import Findings, Handler, Invariant, Judge
from bench.history.names import group_of, member_index

ONE_NUMBER = Invariant(
    name="one_number_a_group",
    promise="A sequence number always carries the same group, and a group has one number.",
    source="ARCHITECTURE.md, Each group once; engine/serving/journal/groups.py",
)
NUMBERS_GROW = Invariant(
    name="numbers_grow",
    promise="A group that is offered for the first time has a higher number than all before it.",
    source="engine/serving/journal/groups.py",
)
SAME_BYTES = Invariant(
    name="same_bytes_again",
    promise="A group that is offered again for the same version has the same hash and bytes.",
    source="engine/serving/delivery/freshness.py; ARCHITECTURE.md, Where state lives",
)
STORED_ONCE = Invariant(
    name="stored_bytes_never_change",
    promise="The group in the journal keeps its hash.",
    source="engine/serving/journal/groups.py",
)
ONLY_LOSS_CHANGES = Invariant(
    name="only_loss_changes",
    promise="Between two offers of a group nothing but the loss of segments may differ.",
    source="engine/serving/delivery/freshness.py",
)
WHOLE = Invariant(
    name="groups_are_whole",
    promise="A group is offered with all of its members, each once.",
    source="engine/serving/journal/groups.py; engine/serving/admission/train.py",
)
MARKS = Invariant(
    name="marks_are_monotone",
    promise="The durable mark never falls, and never passes what was offered.",
    source="engine/serving/delivery/delivery.py",
)
GONE = Invariant(
    name="acknowledged_is_gone",
    promise="A group that the learner acknowledged is not offered again.",
    source="engine/serving/delivery/delivery.py",
)


class Offers(Judge):
    invariants = (
        ONE_NUMBER, NUMBERS_GROW, SAME_BYTES, STORED_ONCE, ONLY_LOSS_CHANGES, WHOLE, MARKS, GONE,
    )  # fmt: skip

    def __init__(self, planned: Planned, findings: Findings) -> None:
        super().__init__(planned, findings)
        self._groups: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._hashes: dict[tuple[int, Any], tuple[str, str]] = {}
        self._bytes: dict[tuple[int, str], str] = {}
        self._stored: dict[int, str] = {}
        self._contents: dict[int, tuple[Any, ...]] = {}
        self._highest = 0
        self._mark = 0

    def handlers(self) -> Mapping[type[Seen], Handler]:
        return {Offered: self._offered, Acknowledged: self._acknowledged}

    def _offered(self, index: int, event: Offered) -> None:
        if not self._is_numbered(index, event):
            return  # what else differs follows from that
        self._sameness(index, event)
        self._wholeness(index, event)
        self.findings.judged(GONE)
        if event.sequence <= self._mark:
            self.findings.breaks(
                GONE,
                index,
                f"{_the(event)} was offered although the learner had acknowledged {self._mark}",
                *_about(event),
            )

    def _is_numbered(self, index: int, event: Offered) -> bool:
        found = self.findings
        found.judged(ONE_NUMBER)
        found.judged(NUMBERS_GROW)
        known = self._groups.get(event.sequence)
        number = self._numbers.setdefault(event.group, event.sequence)
        if known is not None and known != event.group:
            found.breaks(
                ONE_NUMBER,
                index,
                f"number {event.sequence} carried {known} before and now {event.group}",
                *_about(event),
                known,
            )
            return False
        if number != event.sequence:
            found.breaks(
                ONE_NUMBER,
                index,
                f"{event.group} had number {number} before and now {event.sequence}",
                *_about(event),
                f"sequence {number}",
            )
            return False
        if known is None and event.sequence <= self._highest:
            found.breaks(
                NUMBERS_GROW,
                index,
                f"{_the(event)} is new, but number {self._highest} was offered before it",
                *_about(event),
                f"sequence {self._highest}",
            )
        self._groups[event.sequence] = event.group
        self._highest = max(self._highest, event.sequence)
        return True

    def _sameness(self, index: int, event: Offered) -> None:
        found, number = self.findings, event.sequence
        both = event.hash, event.bytes_hash
        known = self._hashes.setdefault((number, event.version), both)
        first = self._bytes.setdefault((number, event.hash), event.bytes_hash)
        found.judged(SAME_BYTES)
        if known != both or first != event.bytes_hash:
            found.breaks(
                SAME_BYTES,
                index,
                f"{_the(event)} for version {event.version} has hash {event.hash} and bytes "
                f"{event.bytes_hash}; it was offered with {known[0]} and {first} before",
                *_about(event),
            )
        if event.stored_hash:
            found.judged(STORED_ONCE)
            stored = self._stored.setdefault(number, event.stored_hash)
            if stored != event.stored_hash:
                found.breaks(
                    STORED_ONCE,
                    index,
                    f"the journal had {_the(event)} with hash {stored}, and now "
                    f"{event.stored_hash}",
                    *_about(event),
                )
        contents = tuple(content_of(member) for member in event.members)
        before = self._contents.get(number)
        if before is None:
            self._contents[number] = contents
            return
        found.judged(ONLY_LOSS_CHANGES)
        if contents != before:
            found.breaks(
                ONLY_LOSS_CHANGES,
                index,
                f"{_the(event)} holds other {_difference(before, contents)} than when it was "
                "offered first",
                *_about(event),
            )

    def _wholeness(self, index: int, event: Offered) -> None:
        self.findings.judged(WHOLE)
        size = self.planned.group_size
        numbers = [member_index(member.trajectory) for member in event.members]
        strangers = [m.trajectory for m in event.members if group_of(m.trajectory) != event.group]
        if sorted(numbers) != list(range(size)) or strangers:
            wrong = f", {strangers[0]} is another group's" if strangers else ""
            self.findings.breaks(
                WHOLE,
                index,
                f"{_the(event)} was offered with the members {numbers}; it has {size}{wrong}",
                *_about(event),
            )

    def _acknowledged(self, index: int, event: Acknowledged) -> None:
        self.findings.judged(MARKS)
        if event.mark < self._mark:
            self.findings.breaks(
                MARKS,
                index,
                f"the mark fell from {self._mark} to {event.mark}",
                f"sequence {event.mark}",
                f"sequence {self._mark}",
            )
        elif event.mark > self._highest:
            self.findings.breaks(
                MARKS,
                index,
                f"the mark is {event.mark}, but the highest number that was offered is "
                f"{self._highest}",
                f"sequence {event.mark}",
                f"sequence {self._highest}",
            )
        self._mark = max(self._mark, event.mark)


def _the(event: Offered) -> str:
    return f"{event.group} (number {event.sequence})"


def _about(event: Offered) -> tuple[str, str]:
    return event.group, f"sequence {event.sequence}"


def _difference(before: tuple[Any, ...], now: tuple[Any, ...]) -> str:
    for number, (one, other) in enumerate(zip(before, now, strict=False)):
        if one != other:
            return f"tokens, versions, calls or names in member {number}"
    return "members"
