"""The next step's groups, leased and decoded while this step trains.

Only where groups may be older than the weights that they train: at staleness 0 the next batch is
sampled by weights that this step has yet to make.

Invariants
- The lease names the version that its groups will be trained at, one step ahead of what is
  published, so the engine's last check of staleness is the one that it would make then.
- At most one batch is under way or in hand. It is in no ledger, so nothing acknowledges it: where
  the process dies, or the run ends, the engine offers it again.
- A lease ahead that failed, or ended without a group, is forgotten. The step leases anew, with all
  its patience, and what is still wrong then ends the run as ever.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from learner.errors import EngineError
from learner.intake.background import outcome
from learner.intake.client import EngineClient
from toolwright.types import Group, WeightVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A lease that was begun: groups after a mark, to be trained at a version."""

    after: int
    version: WeightVersion
    groups: Future[list[Group]]


class Ahead:
    """Leases as the client does, and one batch of them before it is asked for."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._asked: Asked | None = None

    def begin(self, *, after: int, count: int, version: WeightVersion, wait: float) -> None:
        """Begins the lease of `count` groups after a mark and returns at once."""
        self._forget()
        groups = self._client.begin_lease(after=after, count=count, version=version, wait=wait)
        self._asked = Asked(after=after, version=version, groups=groups)

    def lease(self, *, after: int, count: int, version: WeightVersion, wait: float) -> list[Group]:
        """As `EngineClient.lease`; what was begun for this mark and version is waited for."""
        asked, self._asked = self._asked, None
        if asked is not None and (asked.after, asked.version) == (after, version):
            try:
                if groups := outcome(asked.groups):
                    return groups
            except EngineError:
                pass  # asked for again below, and told of there
        elif asked is not None:
            asked.groups.cancel()
        return self._client.lease(after=after, count=count, version=version, wait=wait)

    def _forget(self) -> None:
        if self._asked is not None:
            self._asked.groups.cancel()
            self._asked = None
