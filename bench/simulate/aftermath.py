"""What a run left on disk, as events: where each position ended, and what was evaluated."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

from bench.history.events import AnyEvent, Evaluated, Fate, Position, Restored, Trained
from engine.config import EngineTable
from engine.serving.evaluation.results import Results
from engine.serving.journal import groups
from engine.serving.journal.schema import FILE_NAME
from toolwright.recipe import Recipe
from toolwright.types import WeightVersion


def survivors(history: Iterable[AnyEvent]) -> set[int]:
    """Sequence numbers that the weights of the surviving lineage were trained on."""
    steps: list[tuple[int, tuple[int, ...]]] = []
    for event in history:
        if isinstance(event, Trained):
            steps.append((event.step, event.sequences))
        elif isinstance(event, Restored):
            steps = [one for one in steps if one[0] <= event.step]
    return {sequence for _, sequences in steps for sequence in sequences}


def positions(recipe: Recipe, history: Sequence[AnyEvent], at: float) -> Iterator[Position]:
    """The journal's word on each position that a group was stored for, or that was skipped."""
    trained = survivors(history)
    with closing(sqlite3.connect(recipe.run_folder / FILE_NAME)) as db:
        attempts: dict[str, list[str]] = defaultdict(list)
        for trajectory, attempt in db.execute("SELECT trajectory, attempt FROM logs ORDER BY log"):
            attempts[trajectory].append(attempt)
        for position, reason in db.execute("SELECT position, reason FROM skipped"):
            yield Position(
                at=at,
                position=position,
                group=f"g{position:07d}",
                fate=Fate.SKIPPED,
                reason=reason,
            )
        found = db.execute("SELECT position, id, sequence, members, dropped FROM groups")
        for position, group, sequence, members, dropped in found:
            fate = Fate.TRAINED if sequence in trained else Fate.PENDING
            if dropped == groups.Fate.STALE:
                fate = Fate.DROPPED
            elif dropped == groups.Fate.TURNED_AWAY:
                fate = Fate.TURNED_AWAY
            yield Position(
                at=at,
                position=position,
                group=group,
                fate=fate,
                sequence=sequence,
                reason="stale" if fate is Fate.DROPPED else "",
                attempts=tuple(
                    tuple(attempts.get(f"{group}-{index}", ())) for index in range(members)
                ),
            )


def evaluations(recipe: Recipe, table: EngineTable, at: float) -> Iterator[Evaluated]:
    """What evaluations.jsonl and the rows' files say."""
    results = Results(recipe.run_folder)
    wanted = {suite.name: suite.n for suite in table.evaluation.suites}
    for row in results.summaries.read():
        version = WeightVersion(lineage=row["lineage"], step=row["step"])
        lines = [one for one in results.rows(row["suite"], version).read() if not one["errored"]]
        wrote = sorted({name for one in lines for name in one["versions"]})
        yield Evaluated(
            at=at,
            suite=row["suite"],
            version=version,
            rows=row["n"],
            expected_rows=wanted[row["suite"]],
            wrote=tuple(map(WeightVersion.parse, wrote)),
        )
