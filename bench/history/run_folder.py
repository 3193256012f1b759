"""What a finished run left on disk, as events: positions and evaluations.

Reads the journal and the evaluation files, and changes nothing. The journal does not know what the
learner trained on, so callers give the numbers of the surviving lineage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path

from bench.history.events import (
    AnyEvent,
    Evaluated,
    Fate,
    Position,
    Restored,
    Trained,
)
from engine.serving.evaluation.results import rows_file
from engine.serving.evaluation.tally import ERRORED, RowState, state_of
from engine.serving.journal.groups import Fate as StoredFate
from engine.serving.journal.logs import LogState
from engine.serving.journal.reader import JournalReader
from engine.serving.json_lines import JsonLines
from toolwright.types import WeightVersion

STALE = "stale"
"""Reason of a dropped group: the engine drops a group for no other one."""


def surviving(history: Collection[AnyEvent]) -> frozenset[int]:
    """Numbers that the steps of the surviving lineage trained on."""
    steps: list[Trained] = []
    for event in history:
        if isinstance(event, Trained):
            steps.append(event)
        elif isinstance(event, Restored):
            while steps and steps[-1].step > event.step:
                steps.pop()
    return frozenset(number for step in steps for number in step.sequences)


def positions(run_folder: Path, *, at: float, trained: Collection[int]) -> list[Position]:
    """The fate of every position that the journal knows, by position. at: seconds on the harness's
    clock; trained: see `surviving`.

    Raises StartupError if there is no journal, sqlite3.Error for a damaged one.
    """
    with closing(JournalReader(run_folder)) as reader:
        groups, skipped = reader.numbered(), reader.skipped()
        logged = reader.attempts(LogState.OPEN, LogState.GIVEN_UP, LogState.COMPLETE)
    made: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for one in logged:
        trajectory = one.name.partition("/")[0]
        group, _, index = trajectory.rpartition("-")
        if index.isdecimal():
            made[group][int(index)].append(one.name)
    found = [
        Position(
            at=at,
            position=group.position,
            group=group.id,
            fate=_fate(group.fate, group.sequence in trained),
            sequence=group.sequence,
            reason=STALE if group.fate is StoredFate.STALE else "",
            attempts=_in_order(made.pop(group.id, {})),
        )
        for group in groups
    ]
    for position, reason in skipped:
        name = f"g{position:07d}"
        made.pop(name, None)
        found.append(
            Position(at=at, position=position, group=name, fate=Fate.SKIPPED, reason=reason)
        )
    found += [
        Position(
            at=at,
            position=int(name[1:]),
            group=name,
            fate=Fate.PENDING,
            attempts=_in_order(attempts),
        )
        for name, attempts in made.items()
        if name[:1] == "g" and name[1:].isdecimal()
    ]
    return sorted(found, key=lambda one: one.position)


def stored_hashes(run_folder: Path) -> dict[int, str]:
    """Number to the hash of the group in the journal: `Offered.stored_hash`.

    Raises StartupError and sqlite3.Error as `positions` does.
    """
    with closing(JournalReader(run_folder)) as reader:
        return {group.sequence: group.hash for group in reader.numbered()}


def evaluations(
    run_folder: Path,
    *,
    at: float,
    expected: Mapping[str, int] | None = None,
    may_be_cut: bool = False,
) -> list[Evaluated]:
    """Every line of evaluations.jsonl with what its rows' file has.

    expected: rows of each suite by the recipe; without it the engine's own number counts.
    may_be_cut: the run allows new weights to cut an evaluation. Then its first rows are expected,
    as many as its line says. Raises KeyError, TypeError or ValueError for lines that no engine
    wrote.
    """
    found = []
    for summary in JsonLines(run_folder / "evaluations.jsonl").read():
        suite = str(summary["suite"])
        version = WeightVersion(lineage=str(summary["lineage"]), step=int(summary["step"]))
        over: set[int] = set()
        wrote: dict[WeightVersion, None] = {}
        for row in JsonLines(rows_file(run_folder, suite, str(version))).read():
            over.add(int(row["index"]))
            if state_of(row) is RowState.MEASURED:
                wrote.update((WeightVersion.parse(text), None) for text in row["versions"])
        whole = int(summary["asked"]) if expected is None else expected[suite]
        counted = int(summary["n"]) + int(summary[ERRORED]) + int(summary["bad_rows"])
        found.append(
            Evaluated(
                at=at,
                suite=suite,
                version=version,
                rows=sum(1 for index in over if index < counted),
                expected_rows=counted if may_be_cut else whole,
                cut=may_be_cut and counted < whole,
                wrote=tuple(wrote),
            )
        )
    return found


def _fate(stored: StoredFate, trained: bool) -> Fate:
    match stored:
        case StoredFate.STALE:
            return Fate.DROPPED
        case StoredFate.TURNED_AWAY:
            return Fate.TURNED_AWAY
    return Fate.TRAINED if trained else Fate.PENDING


def _in_order(attempts: Mapping[int, list[str]]) -> tuple[tuple[str, ...], ...]:
    if not attempts:
        return ()
    return tuple(tuple(attempts.get(index, ())) for index in range(max(attempts) + 1))
