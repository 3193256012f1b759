"""How the policy of visual reasoning speaks: chat messages, each look a message of its own.

The token layout of a trajectory (VerlTool's multi-turn mode):

    prompt           what to do, the functions of the image tool, then the question with its images
    action 0         reasoning, <tool_call>{"name", "arguments"}</tool_call>
    observation 0    "Image 2: 260 x 220 pixels" and the image, a message of the role `tool`
    action 1, ...
    last action      reasoning, \\boxed{answer}

Which functions are shown depends on the task: frames are selected where it brings a video, or its
metadata say `is_video`, as PixelReasoner's rows with frames do. What a call means is the tool's to
say: a box that is not ordered or not inside is refused there, in words that the policy reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.api import Chat, ToolSpec
from toolwright.types import Task

from . import prompts
from .looks import CLOSE, OPEN, TOOL

VIDEO = "is_video"
"""Key of a task's metadata."""


class Visual(Chat):
    """Options: `image_prompt` and `video_prompt`, the message of the system ("" = none);
    `functions` = false shows none; `tool`, the name of the image tool. Other tools are shown as
    Chat does."""

    def __init__(
        self,
        *,
        image_prompt: str = prompts.PROMPTS["image"],
        video_prompt: str = prompts.PROMPTS["video"],
        functions: bool = True,
        tool: str = TOOL,
    ) -> None:
        super().__init__(call_open=OPEN, call_close=CLOSE)
        self._image_prompt, self._video_prompt = image_prompt, video_prompt
        self._functions = functions
        self._tool = tool

    def opening(self, task: Task, tools: Sequence[ToolSpec]) -> list[Mapping[str, Any]]:
        """A task that brings a message of the system keeps its own."""
        messages = super().opening(task, tools)
        prompt = self._video_prompt if _is_video(task) else self._image_prompt
        if not prompt or messages[0].get("role") == "system":
            return messages
        return [{"role": "system", "content": prompt}, *messages]

    def shown(self, task: Task, tools: Sequence[ToolSpec]) -> list[Mapping[str, Any]]:
        if not self._functions:
            return []
        offered = self.offered(task, tools)
        others = [tool for tool in offered if tool.name != self._tool]
        looking = prompts.CROPS + (prompts.FRAMES if _is_video(task) else ())
        return [*(looking if len(others) < len(offered) else ()), *self.functions(others)]


def _is_video(task: Task) -> bool:
    files = (ref.blob.media_type for ref in task.media)
    return task.metadata.get(VIDEO) is True or any(one.startswith("video/") for one in files)
