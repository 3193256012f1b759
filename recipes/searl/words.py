"""The words of a SEARL recipe: options that its protocol, reward and group hook share."""

from __future__ import annotations

from engine.api import Options


class StepTags(Options):
    """The names of the four tags of a step."""

    subtask: str = "subtask"
    thinking: str = "thinking"
    call: str = "tool_call"
    answer: str = "answer"


TAGS = StepTags()


class Words(Options):
    """What the policy is asked to write."""

    tags: StepTags = TAGS
    max_subtasks: int = 5
    strict_sections: bool = False
    """Refuses a plan with a section that its list does not name."""
    plan_tool: str = "plan"
    """The tool of `toolsvc serve memory:...`."""
