"""Sources of tasks: `source` is the endless stream, `files` and `rows` read files, and `bad_rows`
counts unusable rows."""

from engine.core.tasks.bad_rows import BadRow, BadRows
from engine.core.tasks.source import (
    DrawnTask,
    SourceIdentity,
    SourceRewound,
    TaskSource,
    for_purpose,
)

__all__ = [
    "BadRow",
    "BadRows",
    "DrawnTask",
    "SourceIdentity",
    "SourceRewound",
    "TaskSource",
    "for_purpose",
]
