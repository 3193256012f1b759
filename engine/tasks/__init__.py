"""Where questions come from: `source` is the endless stream, `files` and `rows` read files, `bad_rows`
says what a row that cannot be used costs."""

from engine.tasks.bad_rows import BadRow, BadRows
from engine.tasks.source import DrawnTask, SourceIdentity, SourceRewound, TaskSource, for_purpose

__all__ = [
    "BadRow",
    "BadRows",
    "DrawnTask",
    "SourceIdentity",
    "SourceRewound",
    "TaskSource",
    "for_purpose",
]
