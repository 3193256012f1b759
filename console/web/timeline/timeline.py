"""A step of a run as data for its timeline.

A step lasts from the publish of its weights to that of the next ones. Where one of these is not
known, its trajectories say when it began and ended. Everything that was in flight meanwhile is
told, also what belongs to other steps: it had the samplers too.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from console.web.index.schema import read_index
from console.web.index.spans import LATEST_S, unpacked
from console.web.index.types import NO_STEP, Mark, Times
from console.web.timeline.fold import idle, lanes, load, painted, shares
from console.web.timeline.phases import evaluations, phases
from console.web.timeline.types import Bar, Phase, Window

MOST_BARS = 2_000
"""In flight during a step: beyond, the last ones are left out, and the page says so."""
PARTS = 240
"""Number of parts of the window that have a load: about three pixels each."""
MOST_MARKS = 1_000
SHORTEST_S = 1e-3


def timeline(file: Path, step: int | None) -> dict[str, Any]:
    """A step of an index; None for the newest one. Raises sqlite3.Error.

    step: None where nothing has a time. Times are milliseconds since `window.start`, which is in
    unix seconds; a bar's spans are [kind, from, to], one after the other.
    """
    with closing(read_index(file)) as db:
        first, last = db.execute(
            "SELECT min(step), max(step) FROM times WHERE step > ?", (NO_STEP,)
        ).fetchone()
        if last is None:
            (rows,) = db.execute("SELECT count(*) FROM rows WHERE kind = 'training'").fetchone()
            return {"step": None, "steps": None, "rows": rows}
        step = last if step is None else min(max(step, first), last)
        published = _published(db, step)
        window = _window(db, step, published)
        bars = _bars(db, window)
        marks = _phases(db, window, step)
    return {
        "step": step,
        "steps": [first, last],
        "ended": step + 1 in published,
        "window": {"start": window.start, "ms": window.length * 1e3},
        "published": [
            {"step": number, "at": (at - window.start) * 1e3}
            for number, at in sorted(published.items())
            if window.start <= at <= window.end
        ],
        "phases": [_placed(phase, window) for phase in marks],
        **_told(bars[:MOST_BARS], window),
        "left_out": len(bars) > MOST_BARS,
    }


def _told(bars: list[Bar], window: Window) -> dict[str, Any]:
    over = load(bars, window, PARTS)
    placed = lanes([(bar.times.began, bar.times.began + bar.times.length) for bar in bars])
    return {
        "bars": [_bar(bar, lane, window) for bar, lane in zip(bars, placed, strict=True)],
        "shares": shares(bars, window),
        "idle": idle(bars, window),
        "load": {
            name: [round(value, 2) for value in getattr(over, name)]
            for name in ("requests", "calls", "tokens")
        },
    }


def _bar(bar: Bar, lane: int, window: Window) -> dict[str, Any]:
    offset = (bar.times.began - window.start) * 1e3
    return {
        "name": bar.name,
        "suite": bar.suite,
        "step": bar.step,
        "reward": bar.reward,
        "lane": lane,
        "spans": [
            [kind, round(offset + start * 1e3, 1), round(offset + end * 1e3, 1)]
            for kind, start, end in painted(bar.times)
        ],
    }


def _placed(phase: Phase, window: Window) -> dict[str, Any]:
    return {
        "kind": phase.kind,
        "name": phase.name,
        "from": (phase.start - window.start) * 1e3,
        "to": (phase.end - window.start) * 1e3,
    }


def _window(db: sqlite3.Connection, step: int, published: dict[int, float]) -> Window:
    began, ended = db.execute(
        "SELECT min(began), max(ended) FROM times WHERE step = ?", (step,)
    ).fetchone()
    # A step in the middle may have no trajectory of its own: all that was in flight belongs to its
    # neighbours, and then both publishes are there.
    start = published.get(step, began or 0.0)
    end = published.get(step + 1, 0.0)
    if end < start:  # not yet, or only before a restart that went on from an older checkpoint
        end = ended or start
    return Window(start=start, end=max(end, start + SHORTEST_S))


def _bars(db: sqlite3.Connection, window: Window) -> list[Bar]:
    """What was in flight in the window, in the order of the beginnings; one more than MOST_BARS
    where there is more."""
    found = db.execute(
        "SELECT name, suite, rows.step, reward, began, ended, spans"
        " FROM times JOIN rows ON rows.id = times.row"
        " WHERE ended > ? AND began < ? ORDER BY began, row LIMIT ?",
        (window.start, window.end, MOST_BARS + 1),
    )
    return [
        Bar(
            name=row["name"],
            suite=row["suite"],
            step=row["step"],
            reward=row["reward"],
            times=Times(
                began=row["began"],
                length=row["ended"] - row["began"],
                spans=unpacked(row["spans"]),
            ),
        )
        for row in found
    ]


def _published(db: sqlite3.Connection, step: int) -> dict[int, float]:
    """When the weights of this step and its neighbours were published, the last time of each."""
    rows = db.execute(
        "SELECT step, at FROM marks WHERE kind = 'published' AND step BETWEEN ? AND ? ORDER BY id",
        (step - 1, step + 2),
    )
    return {row["step"]: row["at"] for row in rows}


def _phases(db: sqlite3.Connection, window: Window, step: int) -> list[Phase]:
    learnt = db.execute(
        "SELECT * FROM marks WHERE kind = 'learnt' AND step BETWEEN ? AND ? ORDER BY id",
        (step, step + 2),
    )
    newest = {mark.step: mark for mark in _marks(learnt)}
    asked = db.execute(
        "SELECT * FROM marks WHERE kind = 'evaluated' AND at BETWEEN ? AND ? ORDER BY at LIMIT ?",
        (window.start, LATEST_S, MOST_MARKS),
    )
    found = [*phases(newest.values(), _published(db, step)), *evaluations(_marks(asked))]
    return [phase for phase in found if phase.start < window.end and phase.end > window.start]


def _marks(rows: Iterable[sqlite3.Row]) -> list[Mark]:
    return [
        Mark(
            kind=row["kind"],
            step=row["step"],
            at=row["at"],
            name=row["name"],
            seconds=json.loads(row["seconds"]),
        )
        for row in rows
    ]
