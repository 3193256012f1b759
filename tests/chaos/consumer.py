"""A consumer that outlives engines: leases groups as a learner does, and compares what it is told.

Invariants
- After a crash of the engine it begins at the first group again.
- A group that differs from what was offered under its number before is a conflict, and is kept.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration

from toolwright.rollout.v1 import rollout_pb2 as rollout
from toolwright.rollout.v1 import rollout_pb2_grpc
from toolwright.rpc import options

PAUSE_S = 0.2
WAIT = Duration(seconds=1)
RPC_S = 30.0


@dataclass(frozen=True, slots=True)
class Delivered:
    """A group as it was offered."""

    id: str
    hash: str
    members: int
    bytes_hash: str
    """Of all messages."""


class Consumer(threading.Thread):
    """Runs until `stop`; `groups` by sequence number."""

    def __init__(self, address: str, groups: int) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._wanted = groups
        self._mark = 0
        self._stopped = threading.Event()
        self.groups: dict[int, Delivered] = {}
        self.conflicts: list[str] = []
        self.offered = 0
        """Groups, each as often as it was offered."""

    @property
    def complete(self) -> bool:
        return len(self.groups) >= self._wanted and self._mark >= max(self.groups)

    def from_the_start(self) -> None:
        """The next lease begins at the first group."""
        self._mark = 0

    def stop(self) -> None:
        self._stopped.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        while not self._stopped.is_set():
            with grpc.insecure_channel(self._address, options=options.CHANNEL) as channel:
                stub = rollout_pb2_grpc.RolloutServiceStub(channel)
                try:
                    while not self._stopped.is_set():
                        self._lease(stub)
                except grpc.RpcError:
                    self._stopped.wait(PAUSE_S)

    def _lease(self, stub: Any) -> None:
        status = stub.GetStatus(rollout.GetStatusRequest(), timeout=RPC_S)
        if not status.HasField("version"):
            self._stopped.wait(PAUSE_S)
            return
        mark = self._mark
        request = rollout.LeaseGroupsRequest(
            consumer=rollout.CONSUMER_TRAIN,
            after_sequence=mark,
            max_groups=self._wanted,
            version=status.version,
            wait=WAIT,
        )
        digest = hashlib.sha256()
        for item in stub.LeaseGroups(request, timeout=4 * RPC_S):
            if item.HasField("trajectory"):
                digest.update(item.trajectory.SerializeToString(deterministic=True))
                continue
            info = item.group
            group = Delivered(info.id, info.content_hash, info.members, digest.hexdigest())
            digest = hashlib.sha256()
            known = self.groups.setdefault(info.sequence_number, group)
            self.offered += 1
            if known != group:
                self.conflicts.append(f"{info.sequence_number}: {known} became {group}")
            if self._mark == mark:  # nobody said to begin again
                self._mark = mark = info.sequence_number
