"""Two evaluations question by question: what differs, and what chance alone would give.

A pair is one question in one suite and data source, identified by its id; questions with the same
id are also identified by their position in the source. A question's difficulty cancels, so a paired
test finds smaller differences than two standard errors would. 0/1 scores are compared by the exact
test of McNemar, others by a sign-flip permutation test (see `toolwright.statistics`). A question
without a score on either side makes no pair. Rates are compared over the same pairs, by the
linearised error of the difference and the normal distribution.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import StartupError
from engine.offline.evaluate.folder import read_settings
from engine.offline.evaluate.results.rows import REWARD, SuiteRows
from engine.offline.evaluate.results.scores import MOST_SOURCES, set_names
from engine.offline.evaluate.results.table import score, shown
from engine.offline.text_table import NONE, aligned
from toolwright.page.text import plain
from toolwright.statistics import mcnemar, mean_of, normal, sign_flips

Question = tuple[str, int]
"""Id and position in the source; position 0 if the id alone is unique."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredEvaluation:
    """The scores of one evaluation."""

    folder: Path
    weights: str
    scores: Mapping[tuple[str, str], Mapping[Question, float]]
    """Scores of questions by (suite, data source)."""
    shared_ids: Mapping[str, Set[str]]
    """Ids that several questions of a suite have, as far as its rows show."""
    complete: bool
    """Every row is over."""
    rates: Mapping[str, Mapping[tuple[str, Question], tuple[float, float]]]
    """Numerators and denominators of questions by (suite, question), by the rate's name."""


def compare(a: Path, b: Path, *, by: str = "") -> dict[str, Any]:
    """The figures of B less A. by: part of the reward; "" = the reward.

    Raises StartupError for a folder without an evaluation, and if no question is scored in both.
    """
    ours, theirs = read_scores(b, by), read_scores(a, by)
    before, after = sets_of(theirs, ours), sets_of(ours, theirs)
    shared = [name for name in after if name in before]
    sets = [paired(name, before[name], after[name]) for name in shared]
    if not any(one["n"] for one in sets):
        raise StartupError(
            f"no question has a score in both {a} (sets: {', '.join(before) or 'none'}) and {b} "
            f"(sets: {', '.join(after) or 'none'}): compare evaluations of the same suites"
        )
    pooled = None
    if len(sets) > 1:
        all_before = {(name, *key): v for name in shared for key, v in before[name].items()}
        all_after = {(name, *key): v for name in shared for key, v in after[name].items()}
        pooled = paired("all questions", all_before, all_after)
    return {
        "a": {"folder": str(a), "weights": theirs.weights, "complete": theirs.complete},
        "b": {"folder": str(b), "weights": ours.weights, "complete": ours.complete},
        "score": by or REWARD,
        "sets": sets,
        "all": pooled,
        "rates": [
            rated(name, _questions(theirs, ours, name), _questions(ours, theirs, name))
            for name in theirs.rates
            if name in ours.rates
        ],
        "only_a": [name for name in before if name not in after],
        "only_b": [name for name in after if name not in before],
    }


def paired(name: str, a: Mapping[Any, float], b: Mapping[Any, float]) -> dict[str, Any]:
    """B less A over the questions of both. Pure."""
    pairs = [(a[key], b[key]) for key in a if key in b]
    differences = [after - before for before, after in pairs]
    better = sum(d > 0 for d in differences)
    worse = sum(d < 0 for d in differences)
    found = mean_of(differences)
    binary = all(value in (0.0, 1.0) for pair in pairs for value in pair)
    return {
        "name": name,
        "n": len(pairs),
        "a": mean.mean if (mean := mean_of(before for before, _ in pairs)) else None,
        "b": mean.mean if (mean := mean_of(after for _, after in pairs)) else None,
        "difference": found.mean if found else None,
        "standard_error": found.stderr if found else None,
        "better": better,
        "worse": worse,
        "test": "McNemar, exact" if binary else "paired permutation",
        "p": (mcnemar(better, worse) if binary else sign_flips(differences)) if pairs else None,
        "only_a": len(a) - len(pairs),
        "only_b": len(b) - len(pairs),
    }


def rated(
    name: str, a: Mapping[Any, tuple[float, float]], b: Mapping[Any, tuple[float, float]]
) -> dict[str, Any]:
    """B less A of a rate over the questions of both, each given as (numerator, denominator). Pure.

    The rates are None if a denominator is 0.
    """
    keys = [key for key in a if key in b]
    n = len(keys)
    whole_a, whole_b = (sum(side[key][1] for key in keys) for side in (a, b))
    found: dict[str, Any] = {
        "name": name, "n": n, "a": None, "b": None, "difference": None, "standard_error": None,
        "better": None, "worse": None, "test": "normal", "p": None,
    }  # fmt: skip
    if not whole_a or not whole_b:
        return found
    rate_a = sum(a[key][0] for key in keys) / whole_a
    rate_b = sum(b[key][0] for key in keys) / whole_b
    found |= {"a": rate_a, "b": rate_b, "difference": rate_b - rate_a}
    if n > 1:
        left = (
            (b[key][0] - rate_b * b[key][1]) / whole_b - (a[key][0] - rate_a * a[key][1]) / whole_a
            for key in keys
        )
        error = math.hypot(*left) * math.sqrt(n / (n - 1))
        found |= {"standard_error": error, "p": normal(rate_b - rate_a, error)}
    return found


def _questions(
    one: ScoredEvaluation, other: ScoredEvaluation, name: str
) -> dict[tuple[str, Question], tuple[float, float]]:
    """A rate's sums by scored question. The position counts only for an id of several questions."""
    found = {}
    for (suite, _), scored in one.scores.items():
        shared = one.shared_ids.get(suite, set()) | other.shared_ids.get(suite, set())
        for key in scored:
            place = key[1] if key[0] in shared else 0
            found[suite, (key[0], place)] = one.rates[name].get((suite, key), (0.0, 0.0))
    return found


def read_scores(folder: Path, by: str) -> ScoredEvaluation:
    """The scores of a folder; a question with several samples has their mean."""
    settings = read_settings(folder)
    sums: dict[tuple[str, str], dict[Question, tuple[float, int]]] = {}
    shared_ids: dict[str, set[str]] = {}
    rates: dict[str, dict[tuple[str, Question], tuple[float, float]]] = {}
    known: set[str] = set()
    complete = True
    for suite in settings.suites:
        rows = SuiteRows(folder, settings, suite)
        first: dict[str, int] = {}
        shared = shared_ids[suite.name] = set()
        for row in rows.walk():
            known.update(row.parts)
            own = sums.setdefault((suite.name, row.data_source), {})
            key = (row.task_id, row.position)
            total, count = own.get(key, (0.0, 0))
            own[key] = (total + row.parts.get(by or REWARD, 0.0), count + 1)
            for name, (part, whole) in row.rates.items():
                sums_of = rates.setdefault(name, {})
                part_before, whole_before = sums_of.get((suite.name, key), (0.0, 0.0))
                sums_of[suite.name, key] = (part_before + part, whole_before + whole)
            if first.setdefault(row.task_id, row.question) != row.question:
                shared.add(row.task_id)
        for index, task_id, _ in rows.unscored.named:
            question = index // settings.samples
            if first.setdefault(task_id, question) != question:
                shared.add(task_id)
        complete = complete and not rows.unscored.open
    if by and known and by not in known:
        raise StartupError(f"--by {by}: rows of {folder} have the parts {', '.join(sorted(known))}")
    means = {
        key: {question: total / count for question, (total, count) in own.items()}
        for key, own in sums.items()
    }
    return ScoredEvaluation(
        folder=folder,
        weights=settings.weights,
        scores=means,
        shared_ids=shared_ids,
        complete=complete,
        rates=rates,
    )


def sets_of(one: ScoredEvaluation, other: ScoredEvaluation) -> dict[str, Mapping[Question, float]]:
    """The sets of `one`, by name.

    A suite is split by the data sources of both evaluations, so both are split alike.
    """
    suites = {name: list[str]() for name, _ in (*one.scores, *other.scores)}
    for name, source in (*one.scores, *other.scores):
        if source not in suites[name]:
            suites[name].append(source)
    sources = {
        name: sorted(own) if 1 < len(own) <= MOST_SOURCES else []
        for name, own in sorted(suites.items())
    }
    names = set_names(sources)
    sets: dict[str, dict[Question, float]] = {}
    places = {key: min(place for _, place in own) for key, own in one.scores.items()}
    for (name, source), own in sorted(one.scores.items(), key=lambda item: places[item[0]]):
        shared = one.shared_ids.get(name, set()) | other.shared_ids.get(name, set())
        found = sets.setdefault(names[name, source if sources[name] else ""], {})
        for (task_id, place), value in own.items():
            found[task_id, place if task_id in shared else 0] = value
    return dict(sets)


def table(found: Mapping[str, Any]) -> list[str]:
    """The comparison as lines for a terminal."""
    rows = [["", "pairs", "A", "B", "B - A", "better", "worse", "p", "test"]]
    rows += [_row(one) for one in (*found["sets"], *([found["all"]] if found["all"] else []))]
    rows += [_row(one | {"name": f"rate: {one['name']}"}) for one in found["rates"]]
    lines = [f"A: {found['a']['folder']} (weights {found['a']['weights']})"]
    lines += [f"B: {found['b']['folder']} (weights {found['b']['weights']})", ""]
    lines += [*aligned(rows, right=range(1, 8)), "", *remarks(found)]
    return [plain(line, "") for line in lines]


def remarks(found: Mapping[str, Any]) -> list[str]:
    """One sentence for each difference between the questions of the two."""
    lines = [
        f"{one['name']}: the two did not score the same questions: {one['only_a']} only in A, "
        f"{one['only_b']} only in B; they are left out"
        for one in found["sets"]
        if one["only_a"] or one["only_b"]
    ]
    for side in ("a", "b"):
        if found[f"only_{side}"]:
            lines.append(f"only in {side.upper()}: {', '.join(found[f'only_{side}'])}")
        if not found[side]["complete"]:
            lines.append(
                f"{side.upper()} is not complete: the questions that finish first may be the easy "
                "ones"
            )
    lines.append(
        f"{found['score']}; ± is one standard error of the paired difference; p: how often chance "
        "alone would give as much"
    )
    return lines


def _row(one: Mapping[str, Any]) -> list[str]:
    if one["difference"] is None:
        return [one["name"], "0", *[NONE] * 6, ""]
    difference = score(one["difference"], one["standard_error"])
    sign = "+" if one["difference"] >= 0 else ""
    return [
        one["name"],
        f"{one['n']:,}",
        score(one["a"], None),
        score(one["b"], None),
        sign + difference,
        shown(one["better"], "d"),
        shown(one["worse"], "d"),
        shown(one["p"], ".2g" if (one["p"] or 0.0) < 0.1 else ".2f"),
        one["test"],
    ]
