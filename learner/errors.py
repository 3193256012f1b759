"""What can go wrong in the learner, each with one sentence that names the thing and the mend."""

from __future__ import annotations


class LearnerError(Exception):
    """Base of the tree: the command line prints the message and exits with the class's status."""

    status = 1


class ModelError(LearnerError):
    """The policy folder cannot be trained: absent, another architecture, sizes that do not fit."""


class CheckpointError(LearnerError):
    """A checkpoint is unreadable, or belongs to another run than the recipe describes."""


class EngineError(LearnerError):
    """The engine stayed out of reach, refused a request, or sent something inconsistent."""


class GroupError(LearnerError):
    """Weights did not reach the samplers by a process group; they still may by a folder."""


class MismatchError(LearnerError):
    """Engine and learner were started with different recipes, policies, tokenizers or folders."""


class FolderError(LearnerError):
    """The run's folder cannot be written."""


class PortError(LearnerError):
    """The page for Prometheus cannot be served where the recipe wants it."""


class CollectorError(LearnerError):
    """What recipe or environment say of the collector of traces is no address."""


class TakenError(LearnerError):
    """Another learner has the run. Whoever starts learners again should not after this one."""

    status = 5


class StoppedError(LearnerError):
    """Somebody asked the learner to stop. The status is the signal's, as shells have it."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class DivergedError(LearnerError):
    """Steps in a row had no finite gradient; nothing of them reached the weights."""

    status = 3


class WorthlessError(LearnerError):
    """learner.patience_steps steps in a row taught nothing: masked, empty, or without a signal; or
    the engine finds no group that could."""

    status = 4


class CollapsedError(LearnerError):
    """The policy collapsed: its figures and its reward fell together for several steps."""

    status = 4


class DataError(LearnerError):
    """Trajectories that cannot be trained on: empty file, ids outside of the vocabulary."""
