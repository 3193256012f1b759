"""What `tasks` refuses or cannot do; each message names the thing and the fix."""

from __future__ import annotations


class TaskFault(Exception):
    """Base of the tree."""


class UnknownName(TaskFault):
    """There is no set, or no world, of that name."""


class UnreadableFile(TaskFault):
    """A file is not there, or is not in the format that its name tells."""


class WrongLayout(TaskFault):
    """A row lacks the columns of its set: it is another set's file, most likely."""


class NotMade(TaskFault):
    """A folder or a file cannot be written, or is there already."""


class JudgeDown(TaskFault):
    """The model that judges cannot be had. No verdict: the answer is neither right nor wrong."""
