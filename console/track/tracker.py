"""What a tracker does, whoever stands behind it, and what it may remember from start to start."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from console.track.points import Point, Stream

Destination = Literal["tensorboard", "wandb", "mlflow"]
FOLDER = "console/track"
"""Within the run folder: NAME.json and NAME.lock of each destination."""


class Tracker(Protocol):
    """One destination of a run's curves. Every method may raise whatever its library does."""

    from_start: frozenset[Stream]
    """Streams that a new tracker wants from their first row on."""

    def write(self, points: Sequence[Point]) -> None:
        """Hands points over. A crash before the next `Memory.keep` brings them a second time."""

    def describe(self, settings: Mapping[str, Any]) -> None:
        """The run's settings, again where they changed."""

    def finish(self, results: Mapping[str, Any], *, over: bool) -> None:
        """The last call. over: the run is at its end, and not only this tracker."""


class Memory:
    """NAME.json: how far each file was read, and the library's own name of the run."""

    def __init__(self, run: Path, name: str) -> None:
        self._path = run / FOLDER / f"{name}.json"
        self.places: dict[str, int] = {}
        self.id = ""
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            self.places = {str(k): int(v) for k, v in found["places"].items()}
            self.id = str(found["id"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            # It is not there yet, or was torn: what is written twice does no harm.
            self.places = {}

    def keep(self) -> None:
        """Replaces the file whole. OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps({"places": self.places, "id": self.id}), encoding="utf-8")
        os.replace(new, self._path)
