"""Two evaluations question by question: what differs, and what chance alone would give.

Pairs are rows of one question, told by its id, in one suite and data source; questions that share
an id are told by their place in the source as well. What a question is to both cancels, so that a
paired test sees less than two standard errors would. 0/1 scores are compared by the exact test of
McNemar, others by drawing the signs of the differences anew (see `toolwright.statistics`). A
question without a score on either side makes no pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import StartupError
from engine.offline.evaluate.folder import read_begun
from engine.offline.evaluate.results.rows import REWARD, SuiteRows
from engine.offline.evaluate.results.scores import MOST_SOURCES, names_of_sets
from engine.offline.text_table import NONE, aligned, score
from toolwright.page.text import plain
from toolwright.statistics import mcnemar, mean_of, sign_flips

Question = tuple[str, int]
"""Its id and its position in the source; 0 where the id alone tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One evaluation. scores: by question by (suite, data source). again: ids that several
    questions of a suite share, as far as its rows tell. complete: every row is over."""

    folder: Path
    weights: str
    scores: Mapping[tuple[str, str], Mapping[Question, float]]
    again: Mapping[str, Set[str]]
    complete: bool


def compare(a: Path, b: Path, *, by: str = "") -> dict[str, Any]:
    """The figures of B less A. by: the part of the reward; "" = the reward. StartupError for a
    folder that is no evaluation's, and where the two have no question in common."""
    ours, theirs = read_scores(b, by), read_scores(a, by)
    before, after = sets_of(theirs, ours), sets_of(ours, theirs)
    shared = [name for name in after if name in before]
    sets = [paired(name, before[name], after[name]) for name in shared]
    if not any(one["n"] for one in sets):
        raise StartupError(
            f"{a} and {b} have no question in common that both scored: sets "
            f"{', '.join(before) or 'none'} there, {', '.join(after) or 'none'} here"
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


def read_scores(folder: Path, by: str) -> Scored:
    """The scores of a folder; of several samples of a question their mean."""
    begun = read_begun(folder)
    sums: dict[tuple[str, str], dict[Question, tuple[float, int]]] = {}
    again: dict[str, set[str]] = {}
    known: set[str] = set()
    complete = True
    for suite in begun.suites:
        rows = SuiteRows(folder, begun, suite)
        first: dict[str, int] = {}
        twice = again[suite.name] = set()
        for row in rows.walk():
            known.update(row.parts)
            own = sums.setdefault((suite.name, row.data_source), {})
            key = (row.task_id, row.position)
            total, count = own.get(key, (0.0, 0))
            own[key] = (total + row.parts.get(by or REWARD, 0.0), count + 1)
            if first.setdefault(row.task_id, row.question) != row.question:
                twice.add(row.task_id)
        for index, task_id, _ in rows.without.named:
            question = index // max(1, begun.samples)
            if first.setdefault(task_id, question) != question:
                twice.add(task_id)
        complete = complete and not rows.without.open
    if by and known and by not in known:
        raise StartupError(
            f"--by {by}: no row of {folder} has such a part: {', '.join(sorted(known))}"
        )
    means = {
        key: {question: total / count for question, (total, count) in own.items()}
        for key, own in sums.items()
    }
    return Scored(
        folder=folder, weights=begun.weights, scores=means, again=again, complete=complete
    )


def sets_of(one: Scored, other: Scored) -> dict[str, Mapping[Question, float]]:
    """The sets of the one, by name. A suite has the data sources that either of the two has, so
    that both are split alike, however much of them is scored."""
    suites = {name: list[str]() for name, _ in (*one.scores, *other.scores)}
    for name, source in (*one.scores, *other.scores):
        if source not in suites[name]:
            suites[name].append(source)
    sources = {
        name: sorted(own) if 1 < len(own) <= MOST_SOURCES else []
        for name, own in sorted(suites.items())
    }
    names = names_of_sets(sources)
    sets: dict[str, dict[Question, float]] = {}
    places = {key: min(place for _, place in own) for key, own in one.scores.items()}
    for (name, source), own in sorted(one.scores.items(), key=lambda item: places[item[0]]):
        again = one.again.get(name, set()) | other.again.get(name, set())
        found = sets.setdefault(names[name, source if sources[name] else ""], {})
        for (task_id, place), value in own.items():
            found[task_id, place if task_id in again else 0] = value
    return dict(sets)


def table(found: Mapping[str, Any]) -> list[str]:
    """The comparison as lines for a terminal."""
    rows = [["", "pairs", "A", "B", "B - A", "better", "worse", "p", "test"]]
    rows += [_row(one) for one in (*found["sets"], *([found["all"]] if found["all"] else []))]
    lines = [f"A: {found['a']['folder']} (weights {found['a']['weights']})"]
    lines += [f"B: {found['b']['folder']} (weights {found['b']['weights']})", ""]
    lines += [*aligned(rows, right=range(1, 8)), "", *remarks(found)]
    return [plain(line, "") for line in lines]


def remarks(found: Mapping[str, Any]) -> list[str]:
    """What keeps the two from having been asked the same, a sentence each."""
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
                f"{side.upper()} is not complete: its quick questions may be the easy ones"
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
        str(one["better"]),
        str(one["worse"]),
        f"{one['p']:.2g}" if one["p"] < 0.1 else f"{one['p']:.2f}",
        one["test"],
    ]
