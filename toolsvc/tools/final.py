"""How a policy writes a final answer: the action of `finish` and of `judge`."""

from __future__ import annotations

from pydantic import BaseModel, Field

from toolsvc.plugin.actions import InvalidAction
from toolsvc.plugin.tool import STRICT
from toolsvc.types import TagFormat


class AnswerOptions(BaseModel):
    """What an operator may say about it: a fragment of a tool's options."""

    model_config = STRICT

    tag: str = Field(
        default="finish",
        pattern=r"^[A-Za-z][\w-]*$",
        description="the answer stands between <TAG> and </TAG>",
    )
    answer_chars: int = Field(default=4000, ge=1, description="characters of an answer, at most")

    @property
    def format(self) -> TagFormat:
        return TagFormat(open=f"<{self.tag}>", close=f"</{self.tag}>", argument="answer")

    def answer(self, body: str) -> str:
        """What stands between the marks. InvalidAction if it is empty or too long, so that the
        policy may write another."""
        answer = body.strip()
        if not answer:
            raise InvalidAction(f"nothing between <{self.tag}> and </{self.tag}>")
        if len(answer) > self.answer_chars:
            raise InvalidAction(f"the answer has more than {self.answer_chars} characters")
        return answer
