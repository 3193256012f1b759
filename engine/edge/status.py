"""What the engine says of itself: to GetStatus, to the line that people read, to the metrics.

It reads the counters of the parts and owns none. Nothing here changes what the engine does.
"""

from __future__ import annotations

from engine.edge.delivery import Delivery
from engine.edge.publishing import Publisher
from engine.journal.journal import Journal
from engine.lanes.evaluation import EvaluationLane
from engine.lanes.train import TrainLane
from engine.rollout.assignment import Surroundings
from engine.sampler.pool import SamplerPool
from engine.telemetry.metrics import Metrics
from engine.telemetry.progress import Progress
from engine.tools.services import ToolServices
from toolwright import wire
from toolwright.rollout.v1 import rollout_pb2


class EngineStatus:
    """The status of one engine whose parts are all there. `draining` is set by the engine."""

    def __init__(
        self,
        *,
        steps: int,
        lane: TrainLane,
        evaluation: EvaluationLane,
        publisher: Publisher,
        delivery: Delivery,
        pool: SamplerPool,
        services: ToolServices,
        journal: Journal,
        surroundings: Surroundings,
        metrics: Metrics,
        progress: Progress,
    ) -> None:
        """steps: weight versions of the whole run."""
        self.draining = False
        self._steps = steps
        self._lane = lane
        self._evaluation = evaluation
        self._publisher = publisher
        self._delivery = delivery
        self._pool = pool
        self._services = services
        self._journal = journal
        self._surroundings = surroundings
        self._metrics = metrics
        self._progress = progress

    @property
    def state(self) -> str:
        """One word; of several that are true the one that matters most."""
        if not self._publisher.started:
            return "starting"
        if self.draining:
            return "draining"
        if self._lane.full or self._evaluation.full:
            return "full"
        if self._lane.ends_fruitless:
            return "fruitless"
        if self._publisher.publishing:
            return "publishing"
        return "evaluating" if self._evaluation.busy else "running"

    def message(self) -> rollout_pb2.GetStatusResponse:
        """The answer to GetStatus; the state alone while the engine is starting."""
        counts = self._lane.counts
        if not self._publisher.started:
            return rollout_pb2.GetStatusResponse(state=self.state)
        version = self._publisher.version
        return rollout_pb2.GetStatusResponse(
            state=self.state,
            version=wire.version_to_proto(version),
            running=self._lane.running,
            accepted=counts.accepted,
            waiting_groups=counts.waiting,
            last_sequence=counts.last_sequence,
            durable_sequence=counts.durable_sequence,
            dropped_groups=counts.dropped_groups,
            detail=wire.struct(
                {
                    "evaluating": self._evaluation.running,
                    "turned_away_groups": counts.turned_away,
                    "fruitless": self._lane.fruitless if self._lane.ends_fruitless else "",
                }
            ),
            final_evaluation_done=version.step >= self._steps
            and not self._evaluation.busy
            and not self._evaluation.due(version),
        )

    def line(self) -> str:
        """The progress line of this moment. The metrics are brought up to date with it."""
        return self._progress.line(
            state=self.state,
            step=self._publisher.version.step,
            running=self._lane.running,
            evaluating=self._evaluation.running,
            waiting=self._lane.counts.waiting,
            turned_away=self._lane.counts.turned_away,
            tokens=self._measure(),
            reward=self._metrics.mean_reward,
        )

    def _measure(self) -> int:
        """Sets the metrics to what the parts count; returns the tokens that samplers have sent."""
        counts, parts = self._lane.counts, self._metrics.parts
        self._metrics.running.set(self._lane.running)
        self._metrics.version.set(self._publisher.version.step)
        self._metrics.waiting.set(counts.waiting)
        parts.tools(self._services.statistics())
        parts.attempts(self._surroundings.failures)
        parts.groups(
            passed_over=counts.skipped,
            dropped=counts.dropped_groups,
            turned_away=counts.turned_away,
            old_tokens=self._delivery.old_tokens,
        )
        parts.journal(
            full=self._lane.full, backlog=self._journal.backlog, commit_s=self._journal.commit_s
        )
        return parts.samplers(self._pool.statistics())
