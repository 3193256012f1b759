"""The engine's status: for GetStatus, for the progress line, and for the metrics.

It reads the counters of the parts and owns no counter. Nothing here changes what the engine does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from shutil import disk_usage
from typing import Any

from engine.core.tools.link.counts import ServiceStatistics
from engine.serving.admission.cache_gate import CacheGate
from engine.serving.admission.submitted import Submissions
from engine.serving.admission.train import TrainLane
from engine.serving.delivery.delivery import Delivery
from engine.serving.evaluation import EvaluationLane
from engine.serving.ingress.agents import Agents
from engine.serving.journal.journal import Journal
from engine.serving.publish.publishing import Publisher
from engine.serving.telemetry.metrics import Metrics
from engine.serving.telemetry.progress import EngineProgress
from toolwright import wire
from toolwright.rollout.v1 import rollout_pb2
from toolwright.text.figures import restarted


class EngineStatus:
    """The status of one assembled engine. The engine sets `draining`."""

    def __init__(
        self,
        *,
        run_folder: str,
        steps: int,
        lane: TrainLane,
        evaluation: EvaluationLane,
        publisher: Publisher,
        delivery: Delivery,
        samplers: Callable[[], Mapping[str, Mapping[str, Any]]],
        services: Callable[[], Mapping[str, ServiceStatistics]],
        journal: Journal,
        failures: Callable[[], Mapping[str, int]],
        metrics: Metrics,
        progress: EngineProgress,
        submissions: Submissions,
        agents: Agents | None = None,
        gate: CacheGate | None = None,
    ) -> None:
        """run_folder: absolute path, which identifies the engine. steps: weight versions of the
        run. samplers, services, failures: statistics of the whole engine. agents: the outside
        attempts, if a task has agents of its own. gate: if the caches bound what is in flight.
        """
        self.draining = False
        self._run_folder = run_folder
        self._steps = steps
        self._lane = lane
        self._evaluation = evaluation
        self._publisher = publisher
        self._delivery = delivery
        self._samplers = samplers
        self._services = services
        self._journal = journal
        self._failures = failures
        self._metrics = metrics
        self._progress = progress
        self._submissions = submissions
        self._agents = agents
        self._gate = gate

    @property
    def state(self) -> str:
        """The state in one word; if several apply, the most important one."""
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
        if self._publisher.memory_released:
            return "training"
        return "evaluating" if self._evaluation.busy else "running"

    def message(self) -> rollout_pb2.GetStatusResponse:
        """The answer to GetStatus; state and run folder alone while the engine is starting."""
        counts = self._lane.counts
        if not self._publisher.started:
            detail = wire.struct({"run_folder": self._run_folder})
            return rollout_pb2.GetStatusResponse(state=self.state, detail=detail)
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
                    "run_folder": self._run_folder,
                    "run": self._journal.owner,
                    "evaluating": self._evaluation.running,
                    "turned_away_groups": counts.turned_away,
                    "fruitless": self._lane.fruitless if self._lane.ends_fruitless else "",
                    **self._work(),
                }
            ),
            final_evaluation_done=self.over,
        )

    @property
    def over(self) -> bool:
        """Whether the run's last version is evaluated: no trajectory follows."""
        version = self._publisher.version
        done = version.step >= self._steps
        return done and not self._evaluation.busy and not self._evaluation.due(version)

    def _work(self) -> dict[str, Any]:
        """Work in progress, for observers: totals since the engine's start, and the present
        moment."""
        done, asked = self._evaluation.rows
        samplers = self._samplers().values()
        services = self._services()
        return {
            "steps": self._steps,
            "tokens": sum(one["received"] for one in samplers),
            "calls": sum(one.calls for one in services.values()),
            "reward": self._metrics.mean_reward,
            "evaluated_rows": done,
            "evaluation_rows": asked,
            "samplers": len(samplers),
            "samplers_up": sum(one["up"] for one in samplers),
            "sampler_away": next((one["why"] for one in samplers if not one["up"]), ""),
            "tool_restarted": restarted({name: one.restarts for name, one in services.items()}),
            "sampler_requests": sum(one["in_flight"] for one in samplers),
            "tool_sessions": sum(one.open_sessions for one in services.values()),
            "tool_calls_in_flight": sum(one.calls_in_flight for one in services.values()),
            "waiting_tasks": self._submissions.waiting,
            "waits_for_task": int(self._lane.waits_for_task),
            "agents": self._agents.live if self._agents else 0,
            "waiting_for_agents": self._agents.waiting if self._agents else 0,
            "limit": self._gate.limit.limit() if self._gate else 0,
            "waiting_for_cache": self._gate.waiting if self._gate else 0,
        }

    def line(self) -> str:
        """The progress line of this moment. It also updates the metrics."""
        return self._progress.line(
            state=self.state,
            step=self._publisher.version.step,
            running=self._lane.running,
            evaluating=self._evaluation.running,
            waiting=self._lane.counts.waiting,
            turned_away=self._lane.counts.turned_away,
            tokens=self._measure(),
            reward=self._metrics.mean_reward,
            limit=self._gate.limit.limit() if self._gate else 0,
            paused=self._gate.waiting if self._gate else 0,
        )

    def _measure(self) -> int:
        """Updates the metrics from the parts' counters. Returns the tokens that samplers have
        sent."""
        counts, parts = self._lane.counts, self._metrics.parts
        self._metrics.running.set(self._lane.running)
        self._metrics.version.set(self._publisher.version.step)
        self._metrics.waiting.set(counts.waiting)
        if self._gate is not None:
            limit = self._gate.limit
            parts.concurrency(
                limit=limit.limit(),
                waiting=self._gate.waiting,
                lost=limit.lost,
                retractions=limit.retractions,
            )
        parts.tools(self._services())
        parts.attempts(self._failures())
        parts.groups(
            passed_over=counts.skipped,
            dropped=counts.dropped_groups,
            turned_away=counts.turned_away,
            old_tokens=self._delivery.old_tokens,
        )
        parts.journal(
            full=self._lane.full,
            backlog=self._journal.backlog,
            commit_s=self._journal.commit_s,
            commits=self._journal.commits,
            free=disk_usage(self._run_folder).free,
        )
        return parts.samplers(self._samplers())
