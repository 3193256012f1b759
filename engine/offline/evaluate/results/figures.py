"""Every figure of an evaluation, as the plain data of results.json.

Table and page show nothing else. Programs read `sets`, {name, score, n, standard_error, ...} each,
and `average`. Only rows on disk count, so a stopped or running evaluation has results too;
`complete` says whether every row is over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from engine.errors import StartupError
from engine.offline.evaluate.folder import FORMAT, PAGE, RESULTS, EvaluationSettings, read_settings
from engine.offline.evaluate.results.page import page
from engine.offline.evaluate.results.paper_tables import PaperTables
from engine.offline.evaluate.results.rows import REWARD, SuiteRows, UnscoredRows
from engine.offline.evaluate.results.scores import MeanScore, SetScores, SuiteScores, set_names
from engine.offline.output_files import write_whole
from engine.offline.prices import Prices
from engine.serving.evaluation.rates import Rates

MOST_LOST = 20
"""Most rows without a score that results and page name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultOptions:
    """How results are made from rows."""

    by: str = ""
    """Part of the reward that is the score; "" = the reward."""
    prices: Prices = field(default_factory=Prices)
    papers: PaperTables = field(default_factory=PaperTables)
    """Tables of papers that the page shows as well."""


def write_results(folder: Path, reading: ResultOptions) -> dict[str, Any]:
    """Writes results.json and page.html from the folder's rows; returns the results.

    Raises StartupError as `results` does.
    """
    found = results(folder, reading)
    write_whole(folder / RESULTS, orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n")
    write_whole(folder / PAGE, page(found, folder, reading.papers.sections(found)).encode())
    return found


def results(folder: Path, reading: ResultOptions) -> dict[str, Any]:
    """The figures of a folder.

    Raises StartupError for a folder without an evaluation, for unreadable rows, and if `by` is not
    a part of the reward.
    """
    settings = read_settings(folder)
    scores: dict[str, SuiteScores] = {}
    without: dict[str, UnscoredRows] = {}
    for suite in settings.suites:
        rows = SuiteRows(folder, settings, suite)
        own = scores[suite.name] = SuiteScores(settings.samples)
        for row in rows.walk():
            own.add(row)
        without[suite.name] = rows.unscored
    by, prices = reading.by or REWARD, reading.prices
    _check_part(by, scores)
    names = set_names({name: list(own.sources) for name, own in scores.items()})
    sets = [
        {
            "name": names[name, source],
            "suite": name,
            "data_source": source or None,
            **_figures(own, by, prices),
        }
        for name, suite_scores in scores.items()
        for source, own in (suite_scores.sources or {"": suite_scores.whole}).items()
    ]
    return {
        "format": FORMAT,
        "name": settings.name,
        "weights": settings.weights,
        "version": settings.version,
        "samples": settings.samples,
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
                **_figures(scores[suite.name].whole, by, prices),
            }
            for suite in settings.suites
        ],
        "total": _total([own.whole for own in scores.values()], prices),
        "prices": {"input": prices.read, "output": prices.written} if prices.known else None,
        "without_a_score": _unscored(settings, without),
        "settings": dict(settings.settings),
    }


def _check_part(by: str, scores: Mapping[str, SuiteScores]) -> None:
    known = list(dict.fromkeys(name for own in scores.values() for name in own.whole.names))
    if known and by not in known:
        raise StartupError(f"--by {by}: the rows have the parts {', '.join(known)}")


def _figures(own: SetScores, by: str, prices: Prices) -> dict[str, Any]:
    score = own.score(by)
    rows = own.rows
    return {
        "score": _digits(score.mean) if score else None,
        "standard_error": _error(score),
        "n": own.questions,
        "parts": {name: _score(own.score(name)) for name in own.names},
        "rates": _rates([own]),
        "pass_at": {str(k): _score(found) for k, found in own.passes(by).items()},
        "stops": dict(own.stops.most_common()),
        "masked": own.masked,
        "sampled": dict(own.sampled),
        "measured_rows": rows,
        "calls": _digits(own.calls / rows) if rows else None,
        "input_tokens": _digits(own.input_tokens / rows) if rows else None,
        "output_tokens": _digits(own.output_tokens / rows) if rows else None,
        "seconds": _digits(own.seconds / rows) if rows else None,
        "cost": prices.cost(own.input_tokens, own.output_tokens),
    }


def _average(sets: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The unweighted mean over the sets, whatever their sizes.

    None for a single set, and if a set has no score: the rest would be another average.
    """
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


def _total(all_of: Sequence[SetScores], prices: Prices) -> dict[str, Any]:
    read = sum(own.input_tokens for own in all_of)
    written = sum(own.output_tokens for own in all_of)
    return {
        "questions": sum(own.questions for own in all_of),
        "rows": sum(own.rows for own in all_of),
        "calls": sum(own.calls for own in all_of),
        "input_tokens": read,
        "output_tokens": written,
        "seconds": _digits(math.fsum(own.seconds for own in all_of)),
        "cost": prices.cost(read, written),
        "rates": _rates(all_of),
    }


def _rates(all_of: Sequence[SetScores]) -> dict[str, dict[str, float | None]]:
    """Rates over all trajectories of the sets, nine digits each."""
    pooled = Rates()
    for own in all_of:
        pooled.include(own.rates)
    return {
        name: {
            key: _digits(value) if isinstance(value, float) else value for key, value in one.items()
        }
        for name, one in pooled.shown().items()
    }


def _unscored(
    settings: EvaluationSettings, without: Mapping[str, UnscoredRows]
) -> list[dict[str, Any]]:
    found = [
        {"suite": suite.name, "index": index, "task_id": task_id, "reason": reason}
        for suite in settings.suites
        for index, task_id, reason in without[suite.name].named
    ]
    return found[:MOST_LOST]


def _score(score: MeanScore | None) -> dict[str, Any] | None:
    return {"mean": _digits(score.mean), "standard_error": _error(score)} if score else None


def _error(score: MeanScore | None) -> float | None:
    return None if score is None or score.stderr is None else _digits(score.stderr)


def _digits(value: float) -> float:
    """Nine digits; more are not measured."""
    return float(f"{value:.9g}")
