"""Errors of the learner. Each message is one sentence that names the thing and the fix."""

from __future__ import annotations


class LearnerError(Exception):
    """Base class. The command line prints the message and exits with the class's status."""

    status = 1


class ModelError(LearnerError):
    """The policy folder cannot be trained: absent, another architecture, sizes that do not fit."""


class CheckpointError(LearnerError):
    """A checkpoint is unreadable, or belongs to another run than the recipe describes."""


class EngineError(LearnerError):
    """The engine stayed out of reach, refused a request, or sent something inconsistent."""


class TeacherError(LearnerError):
    """The server of a teacher stayed out of reach, refused a request, or gave other log-probs."""


class GroupError(LearnerError):
    """Weights did not reach the samplers by a process group; they still may by a folder."""


class RanksError(LearnerError):
    """Another rank hung, died, or never came."""


class MismatchError(LearnerError):
    """Engine and learner were started with different recipes, policies, tokenizers or folders."""


class FolderError(LearnerError):
    """The run's folder cannot be written."""


class PortError(LearnerError):
    """The page for Prometheus cannot be served at the recipe's port."""


class CollectorError(LearnerError):
    """The collector of traces, in the recipe or the environment, is not an address."""


class TakenError(LearnerError):
    """Another learner has the run. A supervisor must not restart a learner after this error."""

    status = 5


class StoppedError(LearnerError):
    """A signal stopped the learner. The status is 128 plus the signal, as in shells."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class DivergedError(LearnerError):
    """Several steps in a row had no finite gradient; the weights did not move in them."""

    status = 3


class WorthlessError(LearnerError):
    """learner.patience_steps steps in a row taught nothing: masked, empty, or without a signal. Or
    the engine finds no group that could."""

    status = 4


class CollapsedError(LearnerError):
    """The policy collapsed: its figures and its reward fell together for several steps."""

    status = 4


class DataError(LearnerError):
    """Trajectories that cannot be trained on: empty file, ids outside of the vocabulary."""
