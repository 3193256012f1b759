"""The user's criteria: functions of a scored trajectory that decide whether to keep it.

`trajectory.metadata["texts"]` holds the texts of its actions, as reward functions see them, and
`trajectory.metadata["tools"]` the schemas of its session's tools. A function that raises or returns
neither True nor False ends the command, because no default would be right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from engine.core.rewards.calling import CallFailed, RecipeFunction
from engine.core.rewards.reading import shown
from engine.errors import EngineError, StartupError
from toolwright.types import Trajectory

LONGEST_EXCERPT = 200
"""Characters of a trajectory's last text, or of a refusal, that an example shows."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


class CriterionFailed(EngineError):
    """A function of --keep raised or returned neither True nor False."""


class Criterion:
    """One function, async or not."""

    def __init__(self, path: str, folder: Path, *, seconds: float, threads: int) -> None:
        """seconds: longest time of a call. Raises StartupError if the path is not a callable."""
        self._path = path
        self._function = RecipeFunction("--keep", path, folder, seconds=seconds, threads=threads)

    async def accepts(self, trajectory: Trajectory) -> bool:
        """Raises CriterionFailed if the function gives no answer."""
        try:
            answer = await self._function.call(trajectory)
        except CallFailed as error:
            raise CriterionFailed(f"--keep {self._path}: it {error} for {trajectory.id}") from error
        if isinstance(answer, bool) or type(answer).__name__ == "bool":  # numpy has its own
            return bool(answer)
        raise CriterionFailed(
            f"--keep {self._path} returned {shown(answer)} for {trajectory.id}: return True to "
            "keep a trajectory, else False"
        )

    def close(self) -> None:
        self._function.close()


class Criteria:
    """All functions of --keep, by name, in the order of the command line.

    Every function judges every trajectory, so that refusals by one criterion alone can be counted.
    """

    def __init__(self, given: Sequence[str], folder: Path, *, seconds: float, threads: int) -> None:
        """given: see `parse_criteria`. Raises StartupError as it and `Criterion` do."""
        self.paths = parse_criteria(given)
        self._criteria = {
            name: Criterion(path, folder, seconds=seconds, threads=threads)
            for name, path in self.paths.items()
        }

    async def refused_by(self, trajectory: Trajectory) -> tuple[str, ...]:
        """Names of the criteria that refuse it, in order. Raises CriterionFailed."""
        criteria = self._criteria.items()
        return tuple([name for name, one in criteria if not await one.accepts(trajectory)])

    def close(self) -> None:
        for one in self._criteria.values():
            one.close()


def excerpt_of(trajectory: Trajectory) -> str:
    """One line about a trajectory with its texts: its id, how it ended, what it wrote last."""
    last = " ".join(str((trajectory.metadata.get("texts") or ("",))[-1]).split())
    if len(last) > LONGEST_EXCERPT:
        last = f"...{last[-LONGEST_EXCERPT:]}"
    refused = [one.outcome.invalid_reason for one in trajectory.calls if not one.outcome.valid]
    why = f"; its first refused call: {refused[0][:LONGEST_EXCERPT]}" if refused else ""
    ended = trajectory.stop_reason.name.lower()
    return f"{trajectory.id}, calls {len(trajectory.calls)}, {ended}: {last or 'no text'}{why}"


def parse_criteria(given: Sequence[str]) -> dict[str, str]:
    """Paths by name. Each is NAME=PATH, or a path whose function is the name.

    Raises StartupError if two have the same name.
    """
    found: dict[str, str] = {}
    for one in given:
        name, is_named, path = one.partition("=")
        if not is_named or not _NAME.fullmatch(name):
            name, path = one.rpartition(":")[2], one
        if name in found:
            raise StartupError(
                f"--keep: {found[name]} and {path} are both called {name!r}: name them, "
                f"--keep NAME={path}"
            )
        found[name] = path
    return found
