"""Curves of the recorded trajectories themselves: why they carry no loss, and rewards by a label.

The learner's lines know neither, so these come from the index. A step is that of the newest weights
that wrote in a trajectory, as in the table. Of more than MOST_POINTS steps, neighbours are one
point over all of their trajectories, so that means and errors stay those of what was measured.
"""

from __future__ import annotations

import math
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from console.web.index.entries import TRAINING
from console.web.index.index import Index
from console.web.index.label_store import Choice, LabelWord, label_choices
from console.web.index.labels import MASKED, SOURCE
from console.web.index.schema import read_index
from console.web.index.types import NO_STEP
from toolwright.page.plot import Plot, colour, line, plot, short

MOST_POINTS = 300
MOST_SUITES = 8
SUCCESS = 0.5
"""The reward from which on the table shows it in green."""
REASONS = "reasons"
"""The plot's key."""
REWARDS = "rewards"
"""The plot's key."""
BINS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Trajectories of a suite, of one step or of neighbouring ones, under one word.

    rewarded: those whose reward is a number; mean and error: of these rewards, the standard error
    over trajectories, 0 of a single one; good: those of success.
    """

    step: int
    rows: int
    rewarded: int
    mean: float
    error: float
    good: int

    @property
    def success(self) -> tuple[float, float]:
        """The share of success, with its standard error."""
        share = self.good / self.rewarded
        return share, math.sqrt(share * (1 - share) / self.rewarded)


class Split:
    """`split` of one run's index. The last answer is kept until rows come, however many pages ask.
    Any thread may ask."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._lock = threading.Lock()
        self._asked: tuple[int, str] | None = None
        self._told: dict[str, Any] = {}

    def by(self, label: str) -> dict[str, Any]:
        """With the "state" of the index, its generation. sqlite3.Error."""
        with self._lock:
            # Before the reading: what comes meanwhile is another state.
            asked = (self._index.generation, label)
            if self._asked != asked:
                self._told = split(self._index.file, label) | {"state": asked[0]}
                self._asked = asked
            return self._told


def split(file: Path, by: str) -> dict[str, Any]:
    """{"keys", "by", "sections"}. keys: labels to choose from. by: the label that is drawn; an
    unknown one stands for the data source, or for the first label. Raises sqlite3.Error."""
    with closing(read_index(file)) as db:
        choices = {one.key: one for one in label_choices(db)}
        masked = choices.pop(MASKED, None)
        chosen = choices.get(by) or choices.get(SOURCE) or next(iter(choices.values()), None)
        suite = _Suite(db, TRAINING)
        rewards = _rewards(suite)
        reasons = [] if masked is None else _reasons(suite, masked)
        labelled = [] if chosen is None else _by_label(db, chosen, suite)
    sections = [
        {"key": "reward", "title": "Reward", "plots": rewards},
        {"key": "trajectories", "title": "Trajectories", "plots": reasons},
        {"key": "labels", "title": "By label", "plots": labelled},
    ]
    return {
        "keys": list(choices),
        "by": "" if chosen is None else chosen.key,
        "sections": [one for one in sections if one["plots"]],
    }


def _rewards(suite: _Suite) -> list[Plot]:
    """A histogram of the training's rewards for each step: shares of equally wide bins."""
    whole, bins = suite.bins()
    lines = []
    for number, (name, rows) in enumerate(bins):
        points = [(float(step), short(rows[step] / of)) for step, of in whole.items()]
        lines.append(line(name, colour(number), points, "hover"))
    unit = "share of trajectories"
    drawn = plot(REWARDS, "Distribution of rewards", unit, lines, kind="areas", note=suite.note)
    return [] if drawn is None else [drawn]


def _reasons(suite: _Suite, masked: Choice) -> list[Plot]:
    """The share of the training's trajectories that each reason masked."""
    whole = suite.rows()
    lines = []
    for number, word in enumerate(masked.words):
        rows = {cell.step: cell.rows for cell in suite.cells(word)}
        points = [(float(step), short(rows.get(step, 0) / of)) for step, of in whole.items()]
        lines.append(line(word.name, colour(number), points, "hover"))
    note = f"{suite.note} A trajectory may be masked for several reasons."
    unit = "share of trajectories"
    drawn = plot(REASONS, "Masked by reason", unit, lines, note=note, low=0, high=1)
    return [] if drawn is None else [drawn]


def _by_label(db: sqlite3.Connection, chosen: Choice, training: _Suite) -> list[Plot]:
    """Rewards by the words of a label, of the training and of each suite."""
    # From name to name in an index: DISTINCT reads all of its rows.
    found = db.execute(
        "WITH RECURSIVE names(suite) AS (SELECT min(suite) FROM rows UNION ALL"
        " SELECT (SELECT min(suite) FROM rows WHERE suite > names.suite) FROM names"
        " WHERE names.suite IS NOT NULL)"
        " SELECT suite FROM names WHERE EXISTS (SELECT 1 FROM rows INDEXED BY narrow"
        " WHERE rows.suite = names.suite AND step > ? AND kind <> 'file')"
        " ORDER BY suite <> ?, suite LIMIT ?",
        (NO_STEP, TRAINING, MOST_SUITES),
    )
    suites = [training if name == TRAINING else _Suite(db, name) for (name,) in found.fetchall()]
    return [one for suite in suites for one in _of_suite(suite, chosen)]


def _of_suite(suite: _Suite, chosen: Choice) -> list[Plot]:
    cells = {
        word.name: [cell for cell in suite.cells(word) if cell.rewarded] for word in chosen.words
    }
    of = chosen.key if suite.name == TRAINING else f"{chosen.key}, {suite.name}"
    left_out = f" {chosen.more} more words are not drawn." if chosen.more else ""

    def drawn(kind: str, title: str, unit: str, value: Value) -> Plot | None:
        lines = [
            _line(word, number, own, value) for number, (word, own) in enumerate(cells.items())
        ]
        low, high = (0.0, 1.0) if _are_shares(lines) else (None, None)
        key, note = f"label:{kind}:{suite.name}", suite.note + left_out
        return plot(key, f"{title} by {of}", unit, lines, note=note, low=low, high=high)

    told = [
        drawn("reward", "Reward", "mean and standard error", lambda cell: (cell.mean, cell.error))
    ]
    if suite.has_partial_rewards:
        unit = f"share with a reward of {SUCCESS} or more"
        told.append(drawn("success", "Success", unit, lambda cell: cell.success))
    return [one for one in told if one is not None]


Value = Callable[[Cell], tuple[float, float]]


def _are_shares(lines: list[dict[str, Any]]) -> bool:
    return all(0 <= y <= 1 for one in lines for y in one["y"])


def _line(word: str, number: int, cells: list[Cell], value: Value) -> dict[str, Any]:
    told = [(float(cell.step), *value(cell)) for cell in cells]
    drawn = line(word, colour(number), [(x, short(y)) for x, y, _ in told], "hover")
    return drawn | {"error": [short(error) for *_, error in told], "band": True}


class _Suite:
    """The rows of a suite by their steps, or by stretches of equally many steps."""

    def __init__(self, db: sqlite3.Connection, name: str) -> None:
        self.name = name
        self._db = db
        first, last, shift, self._low, self._high = db.execute(
            "SELECT min(step), max(step), avg(reward), min(reward), max(reward)"
            " FROM rows INDEXED BY narrow"
            " WHERE suite = ? AND step > ?",
            (name, NO_STEP),
        ).fetchone()
        self._first = first or 0
        self._width = -(-((last or 0) - self._first + 1) // MOST_POINTS)
        self._shift = shift or 0.0  # near the mean, squares lose no digits

    @property
    def note(self) -> str:
        told = "By the step of the weights that wrote them."
        return told if self._width == 1 else f"{told} A point stands for {self._width} steps."

    @property
    def has_partial_rewards(self) -> bool:
        """Some that are neither 0 nor 1, so that their mean is no share of success."""
        return self._has_rewards_beside(0.0, 1.0)

    def _has_rewards_beside(self, *known: float) -> bool:
        found = self._db.execute(
            "SELECT 1 FROM rows INDEXED BY narrow WHERE suite = ? AND step > ?"
            " AND reward NOT IN (?, ?) LIMIT 1",
            (self.name, NO_STEP, *known),
        )
        return found.fetchone() is not None

    def _stretch(self, step: int) -> int:
        """First step of the stretch that holds a step."""
        return self._first + (step - self._first) // self._width * self._width

    def rows(self) -> dict[int, int]:
        """How many there are, by the first step of each stretch."""
        counted = self._db.execute(
            "SELECT step, count(*) FROM rows INDEXED BY narrow WHERE suite = ? AND step > ?"
            " GROUP BY step",
            (self.name, NO_STEP),
        )
        found: dict[int, int] = {}
        for step, count in counted:
            begin = self._stretch(step)
            found[begin] = found.get(begin, 0) + count
        return found

    def bins(self) -> tuple[dict[int, int], list[tuple[str, dict[int, int]]]]:
        """All rows, and (name, rows) of equally wide bins of the reward, the lowest first; rows by
        the first step of each stretch. Of two rewards each has its own bin."""
        low, high = self._low, self._high
        if low is None or not math.isfinite(high - low):
            return {}, []
        edges = [low + (high - low) * number / BINS for number in range(BINS + 1)]
        names = [f"{a} to {b}" for a, b in pairwise(_told_apart(edges))]
        if not self._has_rewards_beside(low, high):
            edges, names = [low, high], list(dict.fromkeys(_told_apart([low, high])))
        inner = edges[1 : len(names)]
        below = "".join(", total(reward < ?)" for _ in inner)
        counted = self._db.execute(
            f"SELECT step, count(*){below}, count(reward) FROM rows INDEXED BY narrow"
            " WHERE suite = ? AND step > ? GROUP BY step",
            (*inner, self.name, NO_STEP),
        )
        whole = Counter[int]()
        bins = [Counter[int]() for _ in names]
        for step, rows, *sums in counted:
            begin = self._stretch(step)
            whole[begin] += rows
            for own, (less, more) in zip(bins, pairwise((0, *sums)), strict=True):
                own[begin] += int(more - less)
        return dict(whole), [(name, dict(own)) for name, own in zip(names, bins, strict=True)]

    def cells(self, word: LabelWord) -> list[Cell]:
        """Those under a word, in the order of the steps."""
        rows = self._db.execute(
            "SELECT (step - :first) / :width AS stretch, count(*), count(reward), avg(reward),"
            " max(reward) - min(reward), total((reward - :shift) * (reward - :shift)),"
            " total(reward >= :success)"
            " FROM labels WHERE word = :word AND suite = :suite AND step > :none"
            " GROUP BY stretch ORDER BY stretch",
            {
                "first": self._first, "width": self._width, "shift": self._shift,
                "success": SUCCESS, "suite": self.name, "none": NO_STEP, "word": word.number,
            },
        )  # fmt: skip
        return [
            Cell(
                step=self._first + stretch * self._width,
                rows=count,
                rewarded=rewarded,
                mean=mean or 0.0,
                error=_error(rewarded, mean - self._shift, squares) if width else 0.0,
                good=int(good),
            )
            for stretch, count, rewarded, mean, width, squares, good in rows
        ]


def _error(count: int, mean: float, squares: float) -> float:
    """The standard error of a mean. mean, squares: of what is left of numbers less one near them,
    the second as a sum."""
    spread = max(squares - count * mean * mean, 0.0) / (count - 1)
    error = math.sqrt(spread / count)
    return error if math.isfinite(error) else 0.0  # squares of large rewards are no number


def _told_apart(values: list[float]) -> list[str]:
    """The values with as many digits as make different ones differ."""
    for digits in (3, 6, 12, 17):
        found = [f"{value:.{digits}g}" for value in values]
        if len(set(found)) == len(set(values)):
            break
    return found
