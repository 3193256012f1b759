"""Requests to a model, repeated until the answer passes a check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from toolsvc.backends.chat_model import ChatModel
from toolsvc.plugin.results import ToolFailed

Checked = TypeVar("Checked")

_SHOWN = 2000
"""Characters of an unfit answer that its author is shown."""


class Unfit(ToolFailed):
    """An answer did not pass, which a policy may read. `faults` are sentences, or what `as_json` of
    a violation gives; `remark`, a sentence about the answer as a whole."""

    def __init__(self, faults: Sequence[Any], remark: str = "") -> None:
        said = [*map(str, faults), remark] if remark else map(str, faults)
        super().__init__("; ".join(said))
        self.faults = tuple(faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """Settings of the requests to a model."""

    temperature: float
    max_tokens: int
    seed: int
    tries: int
    """Maximum number of requests for one answer."""


async def ask(
    model: ChatModel,
    messages: Sequence[Mapping[str, Any]],
    check: Callable[[str], Checked],
    manner: Manner,
    json_schema: Mapping[str, Any] | None = None,
) -> Checked:
    """Result of `check` for the first answer that passes. Each retry has another seed, and its
    prompt names the faults of the answer before.

    Raises Unfit if the last answer fails too, and as `ChatModel.complete` does.
    """
    unfit = Unfit(["nothing was asked"])
    asked = list(messages)
    for number in range(manner.tries):
        answer = await model.complete(
            asked,
            temperature=manner.temperature,
            max_tokens=manner.max_tokens,
            seed=manner.seed + number,
            json_schema=json_schema,
        )
        try:
            return check(answer.text)
        except Unfit as error:
            remark = f"it was cut off at max_tokens = {manner.max_tokens}" if answer.cut else ""
            unfit = Unfit(error.faults, remark)
        asked = [
            *messages,
            {"role": "assistant", "content": answer.text[:_SHOWN]},
            {"role": "user", "content": f"This does not do: {unfit}. Write it again, corrected."},
        ]
    raise unfit
