"""Which groups the weights have seen.

Invariants: in the lineage of the surviving weights a group is consumed at most once; the ledger
is part of the checkpoint, so that weights and ledger can never disagree; the mark is the sequence
number up to which everything was consumed or dropped on purpose. What lies below the acknowledged
mark is one number: the engine has deleted it and leases nothing from there.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from enum import Enum

from toolwright.types import WeightVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A consumed group. `version`: the weights that it was used at."""

    sequence_number: int
    group: str
    content_hash: str
    lineage: str
    step: int


class Verdict(Enum):
    """What the ledger says about a group that is offered."""

    NEW = "new"
    """Never consumed: train on it."""
    DUPLICATE = "duplicate"
    """Consumed already, identical: skip it."""
    CONFLICT = "conflict"
    """Consumed already under this name with other content: skip it and say so."""


@dataclass(slots=True)
class Ledger:
    """Groups consumed since the last acknowledgement in order of consumption, and the mark.

    acknowledged: the number up to which the engine was told that everything is durable here.
    settled: how many of the groups up to it were consumed.
    """

    entries: list[Entry] = field(default_factory=list)
    mark: int = 0
    acknowledged: int = 0
    settled: int = 0
    _hashes: dict[str, str] = field(default_factory=dict)

    def judge(self, group: str, content_hash: str) -> Verdict:
        """Whether a group may be trained on."""
        known = self._hashes.get(group)
        if known is None:
            return Verdict.NEW
        return Verdict.DUPLICATE if known == content_hash else Verdict.CONFLICT

    def consume(
        self, *, sequence_number: int, group: str, content_hash: str, version: WeightVersion
    ) -> None:
        """Enters a group and moves the mark. ValueError when it was entered before."""
        if group in self._hashes:
            raise ValueError(f"group {group} was consumed before")
        self.entries.append(
            Entry(
                sequence_number=sequence_number,
                group=group,
                content_hash=content_hash,
                lineage=version.lineage,
                step=version.step,
            )
        )
        self._hashes[group] = content_hash
        self.pass_over(sequence_number)

    def pass_over(self, sequence_number: int) -> None:
        """Moves the mark beyond a group that is not wanted."""
        self.mark = max(self.mark, sequence_number)

    def copy(self) -> Ledger:
        """As it is now, whatever becomes of this one."""
        return replace(self, entries=list(self.entries), _hashes=dict(self._hashes))

    def settle(self, acknowledged: int) -> None:
        """The engine knows that everything up to this number is durable: it is only counted now."""
        self.acknowledged = max(self.acknowledged, acknowledged)
        kept = [entry for entry in self.entries if entry.sequence_number > self.acknowledged]
        self.settled += len(self.entries) - len(kept)
        self.entries = kept
        self._hashes = {entry.group: entry.content_hash for entry in kept}

    def dump(self) -> str:
        """JSON lines: the numbers first, then the entries."""
        head = {"mark": self.mark, "acknowledged": self.acknowledged, "settled": self.settled}
        lines = [json.dumps(head)]
        lines += [json.dumps(asdict(entry)) for entry in self.entries]
        return "\n".join(lines) + "\n"

    @classmethod
    def parse(cls, text: str) -> Ledger:
        """Inverse of `dump`. ValueError for anything else."""
        head, *rest = text.splitlines()
        ledger = cls(**json.loads(head))
        for line in rest:
            entry = Entry(**json.loads(line))
            ledger.entries.append(entry)
            ledger._hashes[entry.group] = entry.content_hash
        return ledger
