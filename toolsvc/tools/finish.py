"""`finish`: the policy's way to say that it is done, with an answer. What the answer is worth is
for the recipe's reward to say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolsvc.plugin.built_in import BuiltIn
from toolsvc.tools.final import AnswerOptions
from toolsvc.types import Call, Result


class FinishTool(BuiltIn):
    Options = AnswerOptions
    name = "finish"
    description = "Ends the task with your final answer."
    parallel_calls = True

    def __init__(self, options: AnswerOptions) -> None:
        super().__init__(options)
        self.format = options.format

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {"answer": self._options.answer(super().check(arguments)["answer"])}

    async def call(self, state: object, call: Call) -> Result:
        return Result.of(call.arguments["answer"], done=True)
