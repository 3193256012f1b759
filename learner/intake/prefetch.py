"""The next step's groups, leased and decoded while this step trains.

Used only if groups may be older than the weights that they train. At staleness 0 the weights that
sample the next batch do not exist yet.

Invariants
- The lease names the version at which its groups will be trained, one step after the published
  version. So the engine checks staleness as it would for a lease at that time.
- At most one batch is in flight or waiting. It is in no ledger, so nothing acknowledges it: if the
  process dies, or the run ends, the engine offers it again.
- A prefetch that failed, or ended without a group, is dropped. The step then leases again with the
  full timeout, and an error of that lease ends the run.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from learner.errors import EngineError
from learner.intake.background import outcome
from learner.intake.client import EngineClient
from toolwright.types import Group, WeightVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingLease:
    """A lease in flight: groups after a mark, to be trained at a version."""

    after: int
    version: WeightVersion
    groups: Future[list[Group]]


class Prefetch:
    """Leases like the client, and one batch in advance."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._pending: PendingLease | None = None

    def begin(self, *, after: int, count: int, version: WeightVersion, wait: float) -> None:
        """Begins the lease of `count` groups after a mark and returns at once."""
        self._forget()
        groups = self._client.begin_lease(after=after, count=count, version=version, wait=wait)
        self._pending = PendingLease(after=after, version=version, groups=groups)

    def lease(self, *, after: int, count: int, version: WeightVersion, wait: float) -> list[Group]:
        """Like `EngineClient.lease`. Waits for a prefetch of this mark and version, if there is
        one."""
        pending, self._pending = self._pending, None
        if pending is not None and (pending.after, pending.version) == (after, version):
            try:
                if groups := outcome(pending.groups):
                    return groups
            except EngineError:
                pass  # leased again below, which reports the error
        elif pending is not None:
            pending.groups.cancel()
        return self._client.lease(after=after, count=count, version=version, wait=wait)

    def _forget(self) -> None:
        if self._pending is not None:
            self._pending.groups.cancel()
            self._pending = None
