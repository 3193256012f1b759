"""When the learner did what, and when suites were evaluated: from marks. Pure.

The learner's lines have seconds and no time of day. The end of its step is known all the same: the
engine logs the moment at which it published the step's weights. From there on its phases are laid
backwards; the checkpoint that a line tells of was written before its lease, behind the publish
before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from console.web.index.types import Mark
from console.web.timeline.types import Phase

BEFORE_PUBLISH = ("publish", "export", "train", "lease")
"""Backwards from the moment of the publish."""
CHECKPOINT = "checkpoint"


def phases(learnt: Iterable[Mark], published: Mapping[int, float]) -> list[Phase]:
    """Phases of the learner's steps. published: unix seconds of each known publish, by step."""
    found = []
    for mark in learnt:
        end = published.get(mark.step)
        if end is None:
            continue
        for name in BEFORE_PUBLISH:
            if seconds := mark.seconds.get(name, 0.0):
                found.append(Phase(kind="learner", name=name, start=end - seconds, end=end))
                end -= seconds
        before = published.get(mark.step - 1)
        if before is not None and (seconds := mark.seconds.get(CHECKPOINT, 0.0)):
            found.append(Phase(kind="learner", name=CHECKPOINT, start=before, end=before + seconds))
    return sorted(found, key=lambda phase: phase.start)


def evaluations(marks: Sequence[Mark]) -> list[Phase]:
    """From the beginning of a suite's first question to its line in the log."""
    return [
        Phase(
            kind="evaluation",
            name=mark.name,
            start=mark.at - mark.seconds.get("evaluate", 0.0),
            end=mark.at,
        )
        for mark in marks
    ]
