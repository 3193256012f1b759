"""The results that tools and host make: of plain values, of failures, of invalid actions."""

from __future__ import annotations

import json
from numbers import Real

from toolsvc.types import Media, Result, Text, ToolError
from toolwright.types import Author, ToolErrorKind

AUTHORS = (Author.TOOL, Author.MEMORY, Author.SYSTEM)
"""Authors of observations. Prompt, model and template write no observation."""
MOST_TOKENS = 1 << 20
"""Largest budget of one observation, in tokens: the longest contexts that models have."""


class ToolFailed(Exception):
    """Raised by a tool that failed; the policy reads the message as it stands."""


def as_result(value: object) -> Result:
    """Return value of a tool as a result. Raises TypeError if JSON cannot hold it, or for a wrong
    part of a `Result`."""
    if isinstance(value, Text | Media):
        value = Result(observation=(value,))
    if isinstance(value, Result):
        _check(value)
        return value
    if value is None:
        return Result()
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Result(observation=(Text(text=text),))


def _check(result: Result) -> None:
    """Raises TypeError for a wrong part, here, where the log names the tool: tools of a file are
    not type-checked."""
    for part in result.observation:
        if not (
            (isinstance(part, Text) and isinstance(part.text, str))
            or (isinstance(part, Media) and isinstance(part.data, bytes) and part.media_type)
        ):
            raise TypeError(f"an observation holds Text(text=...) and Media(...), not {part!r:.80}")
    numbers = (
        dict(result.metrics)
        if result.reward is None
        else {"reward": result.reward, **result.metrics}
    )
    if result.author not in AUTHORS:
        names = ", ".join(author.name for author in AUTHORS)
        raise TypeError(f"the author of an observation is one of {names}, not {result.author!r}")
    budget = result.token_budget
    if type(budget) is not int or not 0 <= budget <= MOST_TOKENS:
        raise TypeError(f"token_budget must be a number from 0 to {MOST_TOKENS}, not {budget!r}")
    for name, value in numbers.items():
        if not isinstance(value, Real):
            raise TypeError(f"{name} must be a number, not {value!r:.80}")


def failure(kind: ToolErrorKind, message: str, output: str | None = None) -> Result:
    """Tool error. The policy reads `output`, or the message if there is no output."""
    text = message if output is None else output
    return Result(observation=(Text(text=text),), error=ToolError(kind=kind, message=message))


def invalid(reason: str) -> Result:
    """Result of an action that makes no sense; nothing ran."""
    return Result(
        observation=(Text(text=reason),),
        valid=False,
        invalid_reason=reason,
        error=ToolError(kind=ToolErrorKind.INVALID_ACTION, message=reason),
    )
