"""The evaluation lane. `lane` schedules, `suite` runs one suite under one version, `suite_tasks`
draws its rows, `tally` sums them up, `results` writes the files."""

from engine.serving.evaluation.lane import EvaluationLane, check_tasks

__all__ = ["EvaluationLane", "check_tasks"]
