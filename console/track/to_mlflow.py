"""MLflow, by its own library: MLFLOW_TRACKING_URI says where; without it, the folder RUN/mlflow.

One run there is one run folder: its id is kept, and a later start goes on with it. MLflow keeps
every value that a step was given, so a step that was trained again has two, the later one with the
later time. A parameter keeps its first value, as MLflow wants it; recipe.json has the newest.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from console.track.facts import flat, run_name
from console.track.points import Point, Stream
from console.track.tracker import Memory

Item = TypeVar("Item")

EXPERIMENT = "toolwright"
FOLDER = "mlflow"
MOST_METRICS, MOST_PARAMS = 1000, 100
"""Maximum number of one call, by MLflow's own limits."""
LONGEST_VALUE = 500

# A server that is away is said, and asked again by the one who follows; MLflow alone would try for
# minutes. Values that are set already stay.
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}


class MLflow:
    """One life of the run there."""

    from_start: frozenset[Stream] = frozenset()

    def __init__(self, run: Path, memory: Memory) -> None:
        for name, value in _PATIENCE.items():
            os.environ.setdefault(name, value)
        where = os.environ.get("MLFLOW_TRACKING_URI", "")
        if not where:
            where = (run.resolve() / FOLDER).as_uri()
            # MLflow calls folders old-fashioned. A run's own needs no server and no database.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        self._client = MlflowClient(tracking_uri=where)
        if not memory.id:
            made = self._client.create_run(self._experiment(), run_name=run_name(run))
            memory.id = made.info.run_id
            memory.keep()
        self._id = memory.id
        self._client.update_run(self._id, status="RUNNING")
        self._params = set(self._client.get_run(self._id).data.params)

    def write(self, points: Sequence[Point]) -> None:
        now = int(time.time() * 1000)
        metrics = [
            Metric(_name(f"sft/{name}" if point.stream == "sft" else name), value, now, point.step)
            for point in points
            for name, value in point.values.items()
        ]
        for some in _chunks(metrics, MOST_METRICS):
            self._client.log_batch(self._id, metrics=some)

    def describe(self, settings: Mapping[str, Any]) -> None:
        found = {_name(name): value[:LONGEST_VALUE] for name, value in flat(settings).items()}
        new = [Param(name, value) for name, value in found.items() if name not in self._params]
        for some in _chunks(new, MOST_PARAMS):
            self._client.log_batch(self._id, params=some)
        self._params |= set(found)
        self._client.log_dict(self._id, dict(settings), "recipe.json")

    def finish(self, results: Mapping[str, Any], *, over: bool) -> None:
        tags = [RunTag(_name(name), str(v)[:LONGEST_VALUE]) for name, v in results.items()]
        for some in _chunks(tags, MOST_PARAMS):
            self._client.log_batch(self._id, tags=some)
        self._client.set_terminated(self._id, "FINISHED" if over else "KILLED")

    def _experiment(self) -> str:
        """The id of MLFLOW_EXPERIMENT_NAME, which is made where it is missing."""
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        try:
            return str(self._client.create_experiment(name))
        except MlflowException:
            # Another run made it in this very moment.
            found = self._client.get_experiment_by_name(name)
            if found is None:
                raise
            return str(found.experiment_id)


def _name(name: str) -> str:
    """As MLflow takes it, 250 characters at most. Its folders cannot hold `reward` and
    `reward/correct` side by side, so a dot stands for the stroke."""
    return re.sub(r"[^\w.\- :]", "_", name.replace("/", "."))[:250]


def _chunks(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]
