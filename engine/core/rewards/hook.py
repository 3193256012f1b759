"""The recipe's group hook: an async function of a group whose members are all scored.

`async def hook(group: Sequence[Trajectory]) -> Sequence[Score | None]` returns one entry for each
member in order, None = unchanged. A class, or any object with `group_hook_options`, is called with
them first and gives the function. A hook may call services; it adds parts, anchors, events and
masks. After a crash it may run again for the same group, so it must be safe to run twice; its last
result counts. The group includes members that infrastructure ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog

from engine.core.rewards.calling import CallFailed, RecipeFunction
from engine.core.rewards.reading import ScoreRefused, checked, one_each
from engine.core.rewards.score import HOOK_FAILED, Score, failure
from engine.errors import StartupError
from toolwright.types import Trajectory

PAUSES = (1.0, 5.0)
"""Seconds before a failed hook is called again: its services may be restarting."""

log = structlog.get_logger("group_hook")


class GroupHook:
    """The hook of a recipe."""

    def __init__(
        self,
        path: str,
        folder: Path,
        *,
        seconds: float,
        options: Mapping[str, Any] | None = None,
        pauses: Sequence[float] = PAUSES,
    ) -> None:
        """seconds: longest time of a call. pauses: back-off between calls, in seconds.

        Raises StartupError if path and options give no async function.
        """
        self._function = RecipeFunction(
            "task.group_hook", path, folder, seconds=seconds, options=options
        )
        if not self._function.is_async:
            raise StartupError(
                f"task.group_hook: {path!r} is not an async function: write it with `async def`"
            )
        self._pauses = pauses

    async def scores(self, group: Sequence[Trajectory]) -> list[Score | None]:
        """The checked score of each member; `settle.scored` applies it.

        If every call fails, or the result is not a list of scores, all members leave loss and
        baseline. They get the event `group_hook_failed`. Their rewards would be incomplete.
        """
        try:
            return _checked(await self._called(group), group)
        except (CallFailed, ScoreRefused) as error:
            log.warning("group_hook_failed", group=group[0].group_id, error=str(error))
            return [_failure(str(error)) for _ in group]

    async def _called(self, group: Sequence[Trajectory]) -> Any:
        for pause in (*self._pauses, None):
            try:
                return await self._function.call(tuple(group))
            except CallFailed as error:
                if pause is None:
                    raise
                log.info("group_hook_again", group=group[0].group_id, error=str(error))
                await asyncio.sleep(pause)
        raise AssertionError("unreachable")  # the last pause is None


def _failure(words: str) -> Score:
    # The reward of the reward function stays in the record: it is right, but incomplete.
    failed = failure(HOOK_FAILED, words)
    return Score(keep=False, events=failed.events, outside_baseline=True)


def _checked(values: Any, group: Sequence[Trajectory]) -> list[Score | None]:
    found: list[Score | None] = []
    for value, trajectory in zip(one_each(values, len(group), "scores"), group, strict=True):
        if value is not None and not isinstance(value, Score):
            raise ScoreRefused(f"returned {type(value).__name__} for {trajectory.id}, not a Score")
        found.append(None if value is None else checked(value, trajectory))
    return found
