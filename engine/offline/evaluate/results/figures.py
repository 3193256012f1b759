"""Every figure of an evaluation as the plain data that results.json holds; table and page show no
other. What programs read of it is `sets`, {name, score, n, standard_error, ...} each, and
`average`.

It is made of the rows on disk alone, so an evaluation that was stopped, or still goes on, has
results too: `complete` says whether every row is over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from engine.errors import StartupError
from engine.offline.evaluate.folder import FORMAT, PAGE, RESULTS, Begun, read_begun, write_whole
from engine.offline.evaluate.results.beside import Beside
from engine.offline.evaluate.results.page import page
from engine.offline.evaluate.results.rows import REWARD, SuiteRows, Without
from engine.offline.evaluate.results.scores import Score, SetScores, SuiteScores, names_of_sets

MOST_LOST = 20
"""Rows without a score that results and page name."""
MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How rows are read. by: the reward's part that is the score; "" = the reward. price_in,
    price_out: of a million tokens, in whatever currency; None = no cost is told. beside: tables of
    papers that the page shows as well."""

    by: str = ""
    price_in: float | None = None
    price_out: float | None = None
    beside: Beside = field(default_factory=Beside)

    @property
    def priced(self) -> bool:
        return self.price_in is not None or self.price_out is not None


def write_results(folder: Path, reading: Reading) -> dict[str, Any]:
    """results.json and page.html from the rows of the folder; the results. StartupError for a
    folder that is no evaluation's."""
    found = results(folder, reading)
    write_whole(folder / RESULTS, orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n")
    write_whole(folder / PAGE, page(found, folder, reading.beside.sections(found)).encode())
    return found


def results(folder: Path, reading: Reading) -> dict[str, Any]:
    """The figures of a folder. StartupError for a folder that is no evaluation's, for rows that
    nobody can read, and where `by` names no part."""
    begun = read_begun(folder)
    scores: dict[str, SuiteScores] = {}
    without: dict[str, Without] = {}
    for suite in begun.suites:
        rows = SuiteRows(folder, begun, suite)
        own = scores[suite.name] = SuiteScores(begun.samples)
        for row in rows.walk():
            own.add(row)
        without[suite.name] = rows.without
    by = reading.by or REWARD
    _check_part(by, scores)
    names = names_of_sets({name: list(own.sources) for name, own in scores.items()})
    sets = [
        {
            "name": names[name, source],
            "suite": name,
            "data_source": source or None,
            **_figures(own, by, reading),
        }
        for name, suite_scores in scores.items()
        for source, own in (suite_scores.sources or {"": suite_scores.whole}).items()
    ]
    return {
        "format": FORMAT,
        "name": begun.name,
        "weights": begun.weights,
        "version": begun.version,
        "samples": begun.samples,
        "score": by,
        "complete": not any(one.open for one in without.values()),
        "sets": sets,
        "average": _average(sets),
        "suites": [
            {
                "name": suite.name,
                "rows": suite.n,
                "questions": suite.questions,
                "errored": without[suite.name].errored,
                "bad_rows": without[suite.name].bad,
                "open": without[suite.name].open,
                **_figures(scores[suite.name].whole, by, reading),
            }
            for suite in begun.suites
        ],
        "total": _total([own.whole for own in scores.values()], reading),
        "prices": {"input": reading.price_in, "output": reading.price_out}
        if reading.priced
        else None,
        "without_a_score": _lost(begun, without),
        "settings": dict(begun.settings),
    }


def _check_part(by: str, scores: Mapping[str, SuiteScores]) -> None:
    known = list(dict.fromkeys(name for own in scores.values() for name in own.whole.names))
    if known and by not in known:
        raise StartupError(f"--by {by}: no row has such a part, they have {', '.join(known)}")


def _figures(own: SetScores, by: str, reading: Reading) -> dict[str, Any]:
    score = own.score(by)
    rows = own.rows
    return {
        "score": _digits(score.mean) if score else None,
        "standard_error": _error(score),
        "n": own.questions,
        "parts": {name: _score(own.score(name)) for name in own.names},
        "rates": {
            name: {"rate": _digits(one["rate"]), "of": one["of"]}
            for name, one in own.rates.shown().items()
        },
        "pass_at": {str(k): _score(found) for k, found in own.passes(by).items()},
        "stops": dict(own.stops.most_common()),
        "masked": own.masked,
        "sampled": dict(own.sampled),
        "measured_rows": rows,
        "calls": _digits(own.calls / rows) if rows else None,
        "input_tokens": _digits(own.input_tokens / rows) if rows else None,
        "output_tokens": _digits(own.output_tokens / rows) if rows else None,
        "seconds": _digits(own.seconds / rows) if rows else None,
        "cost": _cost(own, reading),
    }


def _average(sets: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Unweighted over the sets: each counts the same, however many questions it has. None for one
    set, and where a set has no score: the rest would be another average."""
    if len(sets) < 2 or any(one["score"] is None for one in sets):
        return None
    errors = [one["standard_error"] for one in sets]
    return {
        "score": _digits(math.fsum(one["score"] for one in sets) / len(sets)),
        "standard_error": None
        if any(error is None for error in errors)
        else _digits(math.hypot(*errors) / len(sets)),
        "sets": len(sets),
    }


def _total(all_of: Sequence[SetScores], reading: Reading) -> dict[str, Any]:
    costs = [_cost(own, reading) for own in all_of]
    return {
        "questions": sum(own.questions for own in all_of),
        "rows": sum(own.rows for own in all_of),
        "calls": sum(own.calls for own in all_of),
        "input_tokens": sum(own.input_tokens for own in all_of),
        "output_tokens": sum(own.output_tokens for own in all_of),
        "seconds": _digits(math.fsum(own.seconds for own in all_of)),
        "cost": _digits(math.fsum(c for c in costs if c is not None)) if reading.priced else None,
    }


def _cost(own: SetScores, reading: Reading) -> float | None:
    if not reading.priced:
        return None
    read = own.input_tokens * (reading.price_in or 0.0)
    return _digits((read + own.output_tokens * (reading.price_out or 0.0)) / MILLION)


def _lost(begun: Begun, without: Mapping[str, Without]) -> list[dict[str, Any]]:
    found = [
        {"suite": suite.name, "index": index, "task_id": task_id, "reason": reason}
        for suite in begun.suites
        for index, task_id, reason in without[suite.name].named
    ]
    return found[:MOST_LOST]


def _score(score: Score | None) -> dict[str, Any] | None:
    return {"mean": _digits(score.mean), "standard_error": _error(score)} if score else None


def _error(score: Score | None) -> float | None:
    return None if score is None or score.stderr is None else _digits(score.stderr)


def _digits(value: float) -> float:
    """More are not measured."""
    return float(f"{value:.9g}")
