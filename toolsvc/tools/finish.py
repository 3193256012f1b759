"""`finish`: the policy ends the task with an answer. The recipe's reward judges the answer; `judge`
takes answers in the same form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from toolsvc.plugin.actions import InvalidAction
from toolsvc.plugin.tool import STRICT, Tool
from toolsvc.types import Call, Result, TagFormat


class AnswerOptions(BaseModel):
    """Options of a tool that takes a final answer."""

    model_config = STRICT

    tag: str = Field(
        default="finish",
        pattern=r"^[A-Za-z][\w-]*$",
        description="the answer stands between <TAG> and </TAG>",
    )
    answer_chars: int = Field(default=4000, ge=1, description="characters of an answer, at most")


class FinishTool(Tool):
    Config: ClassVar[type[AnswerOptions]] = AnswerOptions
    name = "finish"
    description = "Ends the task with your final answer."
    parallel_calls = True

    def __init__(self, config: AnswerOptions) -> None:
        super().__init__(config)
        tag = config.tag
        self.format = TagFormat(open=f"<{tag}>", close=f"</{tag}>", argument="answer")

    def make_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {"answer": super().make_arguments(arguments)["answer"].strip()}

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        """An empty or too long answer is an invalid action, so that the policy can write another.
        Raises InvalidAction."""
        tag, most = self.config.tag, self.config.answer_chars
        if not arguments["answer"]:
            raise InvalidAction(f"nothing between <{tag}> and </{tag}>")
        if len(arguments["answer"]) > most:
            raise InvalidAction(f"the answer has more than {most} characters")

    async def call(self, state: Any, call: Call) -> Result:
        return Result.of(call.arguments["answer"], done=True)
