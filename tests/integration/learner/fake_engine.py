"""A small engine for the learner's tests: groups on demand, publishes remembered, no sampler.

It keeps what a real one keeps across the learner's deaths: groups by sequence number, the newest
version, the durable mark. Rollouts are random tokens with made-up log-probs, or those of a
`write` function that is given the published folder.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from collections.abc import Sequence as Seq
from concurrent import futures
from pathlib import Path

import grpc

from toolwright import types as t
from toolwright import wire
from toolwright.common.v1 import trajectory_pb2 as pb
from toolwright.policy.v1 import policy_pb2, policy_pb2_grpc
from toolwright.rollout.v1 import rollout_pb2, rollout_pb2_grpc

PIECE = 1000
Write = Callable[[int, t.WeightVersion, Path], Seq[t.Trajectory]]


def random_group(
    number: int, version: t.WeightVersion, _folder: Path, *, size: int = 4, vocabulary: int = 64
) -> list[t.Trajectory]:
    """A group of two-turn trajectories with rewards 0 and 1."""
    draw = random.Random(f"{number}-{version}")

    def ids(count: int) -> tuple[int, ...]:
        return tuple(draw.randrange(vocabulary) for _ in range(count))

    out = []
    for index in range(size):
        segments = [t.Segment(author=t.Author.PROMPT, token_ids=ids(6))]
        for turn in range(2):
            action = ids(draw.randint(2, 6))
            segments.append(
                t.Segment(
                    author=t.Author.MODEL,
                    token_ids=action,
                    turn=turn,
                    logprobs=tuple(-4.0 for _ in action),
                    weight_version=version,
                    trainable=True,
                    sampling=t.SamplingParams(temperature=1.0),
                )
            )
            if turn == 0:
                segments.append(t.Segment(author=t.Author.TOOL, token_ids=ids(3), turn=turn))
        out.append(
            t.Trajectory(
                id=f"g{number}/{index}",
                group_id=f"g{number}",
                index=index,
                task=t.Task(id=f"g{number}"),
                sequences=(t.Sequence(id="0", segments=tuple(segments)),),
                status=t.Status.COMPLETED,
                stop_reason=t.StopReason.ANSWERED,
                reward=float(index % 2),
                reward_parts=(t.RewardPart(name="answer", value=float(index % 2)),),
            )
        )
    return out


class FakeEngine(rollout_pb2_grpc.RolloutServiceServicer, policy_pb2_grpc.PolicyServiceServicer):
    """Serves on a free port of 127.0.0.1 from construction until `stop`.

    recorded: a group is of no lineage, all weights may have it.
    """

    def __init__(self, write: Write = random_group, *, recorded: bool = False) -> None:
        self.write = write
        self.recorded = recorded
        self.version: t.WeightVersion | None = None
        self.folder = Path()
        self.folders: dict[int, Path] = {}
        self.published: list[tuple[t.WeightVersion, t.WeightVersion | None]] = []
        self.groups: dict[int, tuple[t.WeightVersion, pb.GroupInfo, list[pb.Trajectory]]] = {}
        self.durable = 0
        self.turns: list[str] = []
        """Changes of the samplers' memory and publishes, in order."""
        self.learners: list[str] = []
        """Names that came with requests, each once."""
        self.break_after: int | None = None
        self.last: int | None = None
        """Number of the last group that there will ever be."""
        self.refused: set[int] = set()
        """Steps whose leases are refused for good."""
        self.leases: list[tuple[int, int]] = []
        """(step that was named, steps published) of every lease, as it came."""
        self.turned_away, self.fruitless = 0, ""
        self.blobs: dict[str, bytes] = {}
        self.asked: list[tuple[str, int]] = []
        """(hash, offset) of every GetBlob, as it came; the first one breaks after a piece."""
        self._lock = threading.Lock()
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        rollout_pb2_grpc.add_RolloutServiceServicer_to_server(self, self._server)
        policy_pb2_grpc.add_PolicyServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._server.stop(None).wait()

    def _heard(self, request) -> None:
        if request.learner and request.learner not in self.learners:
            self.learners.append(request.learner)

    def ReleaseMemory(self, request, context):
        self._heard(request)
        self.turns.append("release")
        return policy_pb2.ReleaseMemoryResponse(samplers=1)

    def ResumeMemory(self, request, context):
        self._heard(request)
        self.turns.append("resume")
        return policy_pb2.ResumeMemoryResponse(samplers=1)

    def PublishWeights(self, request, context):
        self._heard(request)
        self.turns.append("publish")
        with self._lock:
            version = wire.version_from_proto(request.version)
            parent = wire.version_from_proto(request.parent) if request.HasField("parent") else None
            if (version, parent) not in self.published:
                self.published.append((version, parent))
            self.version, self.folder = version, Path(request.path)
            self.folders[version.step] = self.folder
            return policy_pb2.PublishWeightsResponse(version=request.version, samplers=1)

    def GetPolicy(self, request, context):
        self._heard(request)
        if self.version is None:
            return policy_pb2.GetPolicyResponse()
        return policy_pb2.GetPolicyResponse(
            version=wire.version_to_proto(self.version), path=str(self.folder)
        )

    def GetStatus(self, request, context):
        detail = {"turned_away_groups": self.turned_away, "fruitless": self.fruitless}
        return rollout_pb2.GetStatusResponse(detail=wire.struct(detail))

    def GetBlob(self, request, context):
        self.asked.append((request.sha256, request.offset))
        data = self.blobs[request.sha256]
        for at in range(request.offset, len(data), PIECE):
            if len(self.asked) == 1 and at:
                context.abort(grpc.StatusCode.UNAVAILABLE, "broken on purpose")
            yield rollout_pb2.GetBlobResponse(data=data[at : at + PIECE])

    def AckGroups(self, request, context):
        self._heard(request)
        self.durable = max(self.durable, request.durable_sequence)
        return rollout_pb2.AckGroupsResponse(durable_sequence=self.durable)

    def LeaseGroups(self, request, context):
        self._heard(request)
        self.leases.append((request.version.step, len(self.published) - 1))
        if request.version.step in self.refused:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "refused on purpose")
        sent = 0
        number = request.after_sequence
        while sent < request.max_groups:
            number += 1
            if self.last is not None and number > self.last:
                return
            with self._lock:
                if number not in self.groups:
                    self._produce(number)
                version, info, members = self.groups[number]
            if version.lineage != request.version.lineage and not self.recorded:
                continue  # of an abandoned lineage: dropped
            for member in members:
                yield rollout_pb2.LeaseGroupsResponse(trajectory=member)
                if self.break_after is not None and sent >= self.break_after:
                    self.break_after = None
                    context.abort(grpc.StatusCode.UNAVAILABLE, "broken on purpose")
            yield rollout_pb2.LeaseGroupsResponse(group=info)
            sent += 1

    def _produce(self, number: int) -> None:
        assert self.version is not None
        members = [
            wire.trajectory_to_proto(x) for x in self.write(number, self.version, self.folder)
        ]
        info = pb.GroupInfo(
            id=members[0].group_id,
            sequence_number=number,
            content_hash=wire.content_hash(wire.serialize(m) for m in members),
            members=len(members),
        )
        self.groups[number] = (self.version, info, members)
