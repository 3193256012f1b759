"""Sources of tasks: `source` is the endless stream, `files` and `rows` read files, and `bad_rows`
counts unusable rows."""

from engine.core.tasks.bad_rows import BadRow as BadRow
from engine.core.tasks.bad_rows import BadRows as BadRows
from engine.core.tasks.source import DrawnTask as DrawnTask
from engine.core.tasks.source import SourceIdentity as SourceIdentity
from engine.core.tasks.source import SourceRewound as SourceRewound
from engine.core.tasks.source import TaskSource as TaskSource
from engine.core.tasks.source import for_purpose as for_purpose
