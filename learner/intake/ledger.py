"""The ledger of groups that the weights have consumed.

Invariants
- In the lineage of the surviving weights a group is consumed at most once.
- The ledger is part of the checkpoint, so that weights and ledger cannot disagree.
- The mark is the sequence number up to which every group was consumed or skipped.
- Groups up to the acknowledged mark are only counted: the engine has deleted them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from enum import Enum

from toolwright.types import WeightVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A consumed group."""

    sequence_number: int
    group: str
    content_hash: str
    lineage: str
    step: int
    """Step of the weights that trained on it, in `lineage`."""


class Verdict(Enum):
    """The ledger's answer for an offered group."""

    NEW = "new"
    """Never consumed: train on it."""
    DUPLICATE = "duplicate"
    """Consumed already, with the same content: skip it."""
    CONFLICT = "conflict"
    """Consumed already under this name, with other content: skip it and report it."""


@dataclass(slots=True)
class Ledger:
    """The consumed groups of one lineage."""

    entries: list[Entry] = field(default_factory=list)
    """Groups since the last acknowledgement, in order of consumption."""
    mark: int = 0
    acknowledged: int = 0
    """Newest sequence number that was acknowledged to the engine as durable."""
    settled: int = 0
    """Number of consumed groups up to it."""
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
        """Enters a group and moves the mark. Raises ValueError if it was entered before."""
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
        """Moves the mark past a skipped group."""
        self.mark = max(self.mark, sequence_number)

    def copy(self) -> Ledger:
        """An independent copy."""
        return replace(self, entries=list(self.entries), _hashes=dict(self._hashes))

    def settle(self, acknowledged: int) -> None:
        """Drops the entries up to an acknowledged number and counts them."""
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
        """Inverse of `dump`. Raises ValueError for other text."""
        head, *rest = text.splitlines()
        ledger = cls(**json.loads(head))
        for line in rest:
            entry = Entry(**json.loads(line))
            ledger.entries.append(entry)
            ledger._hashes[entry.group] = entry.content_hash
        return ledger
