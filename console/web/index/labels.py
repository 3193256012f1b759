"""By which a run's trajectories can be told apart: the labels of their tasks. Pure.

A label is a short word under a key: the task's `data_source`, its `task` where the recipe has
several, and what its metadata hold that is one word, number or yes and no. Keys and words are a
stranger's: both are cut, and MOST_KEYS of one trajectory are taken. Which keys are worth to be
grouped by, only all trajectories together tell (`label_store`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from google.protobuf.struct_pb2 import Value

from toolwright.common.v1 import trajectory_pb2 as pb
from toolwright.json_data import mapping
from toolwright.recipe.models.stop_rules import mask_reasons
from toolwright.types import Event

LONGEST_KEY = 60
LONGEST_VALUE = 80
"""Characters: a longer word is cut, and those that begin alike are one."""
MOST_KEYS = 16
"""Maximum number of labels of a trajectory, the first by name."""
MOST_REASONS = 8
SOURCE = "data_source"
TASK = "task"
MASKED = "masked by"
"""The key of the reasons for which a trajectory carries no loss. It may have several."""
OWN = (SOURCE, TASK, MASKED)
"""Keys that metadata cannot take."""

Label = tuple[str, str]
"""Its key and its word."""


def labels_of(task: pb.Task) -> tuple[Label, ...]:
    """Labels of a recorded trajectory's task."""
    own = [(SOURCE, task.data_source), (TASK, task.name)]
    fields = task.metadata.fields
    return _taken([*own, *((key, _word(fields[key])) for key in _first(fields))])


def labels_of_row(row: Mapping[str, Any]) -> tuple[Label, ...]:
    """Labels of a line of an evaluation, which has only the data source."""
    source = row.get(SOURCE)
    return _taken([(SOURCE, source if isinstance(source, str) else "")])


def reasons_of(message: pb.Trajectory) -> tuple[Label, ...]:
    """Why it carries no loss: nothing where it does."""
    if not message.masked:
        return ()
    errored = message.status == pb.TRAJECTORY_STATUS_ERRORED
    reasons = mask_reasons(masked=True, errored=errored, events=_events(message.events))
    return _taken((MASKED, reason) for reason in reasons[:MOST_REASONS])


def shown_value(value: str) -> str:
    """A label's word as the index keeps it."""
    return _cut(value, LONGEST_VALUE)


def _first(fields: Mapping[str, Value]) -> list[str]:
    return sorted(key for key in fields if key not in OWN)[:MOST_KEYS]


def _taken(pairs: Iterable[Label]) -> tuple[Label, ...]:
    cut = ((_cut(key, LONGEST_KEY), shown_value(value)) for key, value in pairs)
    return tuple(dict.fromkeys((key, value) for key, value in cut if key and value))


def _word(value: Value) -> str:
    """ "" for what is no word: nothing, a list, an object."""
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        return value.string_value
    if kind == "bool_value":
        return "yes" if value.bool_value else "no"
    if kind == "number_value" and math.isfinite(value.number_value):
        return f"{value.number_value:.10g}"
    return ""


def _events(events: Iterable[pb.Event]) -> Iterator[Event]:
    """Those that are read here; one that holds no data is passed over."""
    for event in events:
        try:
            yield Event(kind=event.kind, turn=event.turn, data=mapping(event.data, event.data_json))
        except ValueError:
            continue


def _cut(text: str, longest: int) -> str:
    """In one line, and so that a database takes it."""
    line = " ".join(text[: 4 * longest].split())
    short = line if len(line) <= longest else f"{line[: longest - 1]}…"
    return short.encode("utf-8", "replace").decode()
