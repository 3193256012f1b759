"""The evaluation lane: `lane` says when, `suite` runs one suite under one version, `tasks` draws
its rows, `tally` sums them up, `results` is what stays on disk."""

from engine.serving.evaluation.lane import EvaluationLane, check_tasks

__all__ = ["EvaluationLane", "check_tasks"]
