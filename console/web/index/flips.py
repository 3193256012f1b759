"""Questions whose reward differs between two evaluations of a suite."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from console.web.index.schema import read_index
from console.web.index.types import NO_STEP

MOST = 200
"""Rows of an answer."""
MOST_SUITES = 100


def flips(file: Path, suite: str, before: int | None, after: int | None) -> dict[str, Any]:
    """{"suites", "suite", "before", "after", "rose", "fell", "same", "rows"}.

    suites: [{"name", "steps"}], those that were evaluated at two steps. An unknown suite stands for
    the first one, unknown steps for its first and last. rows: those that fell, then those that
    rose, the largest difference first. suite: "" without such a suite. Raises sqlite3.Error.
    """
    with closing(read_index(file)) as db:
        found = db.execute(
            "SELECT DISTINCT suite, step FROM rows INDEXED BY narrow"
            " WHERE kind = 'evaluation' AND step > ? ORDER BY suite, step",
            (NO_STEP,),
        )
        steps: dict[str, list[int]] = {}
        for name, step in found:
            steps.setdefault(name, []).append(step)
        suites = {name: own for name, own in steps.items() if len(own) > 1}
        if not suites:
            return {"suites": [], "suite": ""}
        suite = suite if suite in suites else next(iter(suites))
        own = suites[suite]
        before = before if before in own else own[0]
        after = after if after in own else own[-1]
        pairs = (
            "rows AS one JOIN rows AS other ON other.family = one.family AND other.step = :after"
            " WHERE one.suite = :suite AND one.step = :before"
        )
        values = {"suite": suite, "before": before, "after": after}
        rose, fell, same = db.execute(
            "SELECT total(other.reward > one.reward), total(other.reward < one.reward),"
            f" total(other.reward = one.reward) FROM {pairs}",
            values,
        ).fetchone()
        rows = db.execute(
            "SELECT one.name, other.name AS other, one.reward, other.reward AS became,"
            " one.answer AS said, other.answer AS says,"
            " coalesce(nullif(one.question, ''), nullif(other.question, ''), one.task) AS question"
            f" FROM {pairs} AND other.reward <> one.reward"
            " ORDER BY other.reward > one.reward, abs(other.reward - one.reward) DESC, one.id"
            " LIMIT :most",
            values | {"most": MOST},
        ).fetchall()
    listed = list(suites.items())[:MOST_SUITES]
    return values | {
        "suites": [{"name": name, "steps": own} for name, own in listed],
        "rose": int(rose),
        "fell": int(fell),
        "same": int(same),
        "rows": [dict(row) for row in rows],
    }
