"""The identity of a journal's run: what must not change between two lives of an engine.

Position *i* of another task source is another question, and ids mean the same only under the same
tokenizer. So groups of two such runs must not meet in one journal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from engine.core.tasks import SourceIdentity
from engine.errors import StartupError
from toolwright.imports import recorded
from toolwright.model.model_folder import ModelFolderError, shape_hash
from toolwright.model.weights import check_weights
from toolwright.recipe import Shared

SHOWN = 60
"""Characters of a value in the message."""
_NOTHING = "nothing"


def difference(stored: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, str, str] | None:
    """Name, stored value and present value of the first difference, in the order of `now`. None if
    all are equal."""
    for name in dict.fromkeys((*now, *stored)):
        before, after = stored.get(name, _NOTHING), now.get(name, _NOTHING)
        if before != after:
            return name, before, after
    return None


def sentence(file: Path, stored: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """Why a run with the identity `now` may not use the journal; None if it may."""
    found = difference(stored, now)
    if found is None:
        return None
    name, before, after = found
    start = _start_of_difference(before, after)
    return (
        f"the journal {file} belongs to another run: its {name} is {_cut(before, start)}, the "
        f"recipe's is {_cut(after, start)}; `engine serve RECIPE --fork RUN` opens a new run from "
        "it, or choose a new run.folder"
    )


def policy_identity(folder: Path) -> str:
    """`shape_hash` of a policy folder. Raises StartupError for files that cannot be read, and for
    weights that do not fit config.json."""
    try:
        found = shape_hash(folder)
        check_weights(folder)
    except ModelFolderError as error:
        raise StartupError(f"policy.model: {error}") from error
    return found


def tasks_identity(shared: Shared, sources: Mapping[str, SourceIdentity]) -> dict[str, str]:
    """Identity of every task's questions and of their order, by the task's name."""
    found: dict[str, str] = {}
    for name, task in shared.each_task.items():
        whose, drawn = f" of tasks.{name}" if name else "", sources[name]
        options = json.dumps(task.protocol_options, sort_keys=True)
        order = f"seed {drawn.seed}{', shuffled' if drawn.shuffle else ''}"
        found[f"task source{whose}"] = f"{drawn.name}, {drawn.sha256[:12] or 'a function'}"
        found[f"order of tasks{whose}"] = order
        found[f"protocol{whose}"] = f"{recorded(task.protocol)} {options}"
    if shared.tasks:
        found["groups of each task in a batch"] = json.dumps(shared.allotment)
    return found


def to_json(identity: Mapping[str, str]) -> str:
    """The identity as a fact of the journal."""
    return json.dumps(dict(identity))


def from_json(text: str) -> dict[str, str]:
    """Inverse of `to_json`."""
    return {str(name): str(value) for name, value in json.loads(text).items()}


def _start_of_difference(one: str, other: str) -> int:
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    return max(0, same - SHOWN // 3)


def _cut(value: str, start: int) -> str:
    if len(value) <= SHOWN:
        return repr(value)
    piece = value[start : start + SHOWN]
    before, after = "..." if start else "", "..." if start + SHOWN < len(value) else ""
    return f"{before}{piece!r}{after}"
