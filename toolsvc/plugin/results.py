"""The results that tools and host make: of plain values, of failures, of invalid actions."""

from __future__ import annotations

import json
from numbers import Real

from toolsvc.types import Media, Result, Text, ToolError
from toolwright.types import Author, ToolErrorKind

AUTHORS = (Author.TOOL, Author.MEMORY, Author.SYSTEM)
"""Who may speak in an observation. What prompt, model and template write is no observation."""
MOST_TOKENS = 1 << 20
"""Of one observation: as long as the longest contexts that models have."""


class ToolFailed(Exception):
    """For a plugin to raise: the tool failed in a way that the policy should read as it stands."""


def as_result(value: object) -> Result:
    """What a plugin returned, as a result. TypeError if JSON cannot say it, or if a `Result` holds
    what no answer can."""
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
    """TypeError. Plugins are not type-checked, and a wrong part would be found where nobody could
    tell whose it was."""
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
    """A tool error. The policy reads `output`, or the message where there is none."""
    text = message if output is None else output
    return Result(observation=(Text(text=text),), error=ToolError(kind=kind, message=message))


def invalid(reason: str) -> Result:
    """An action that was not understood; nothing ran."""
    return Result(
        observation=(Text(text=reason),),
        valid=False,
        invalid_reason=reason,
        error=ToolError(kind=ToolErrorKind.INVALID_ACTION, message=reason),
    )
