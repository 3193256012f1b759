"""Lines for a terminal from the data of results.json. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from engine.offline.text_table import NONE, aligned, rate
from toolwright.page.text import plain
from toolwright.types import StopReason

AVERAGE = "average"
ANSWERED = StopReason.ANSWERED.name.lower()
LEFT_OUT = "left_out/"
"""Prefix of the remarks that count actions without a sampling key that the server refuses."""
LEAST_ROWS = 2
"""Smallest set for which the warning about all-zero scores is given, in rows."""


def table(found: Mapping[str, Any]) -> list[str]:
    """One row for each set and the average, then parts, pass@k and rows without a score."""
    priced = found["prices"] is not None
    head = ["", "n", found["score"], "calls", "tokens in", "out", "seconds"]
    rows = [[*head, *(["cost"] if priced else []), "ended"]]
    for one in found["sets"]:
        cost = [shown(one["cost"], ".4g")] if priced else []
        rows.append([*_cells(one), *cost, stops(one)])
    if average := found["average"]:
        text = score(average["score"], average["standard_error"])
        rows.append([AVERAGE, f"of {average['sets']}", text, *[""] * (len(rows[0]) - 3)])
    lines = [*aligned(rows, right=range(1, len(rows[0]) - 1)), ""]
    lines += _parts(found)
    lines += _passes(found)
    lines += missing(found)
    lines += (f"warning: {line}" for line in warnings(found))
    lines.append(f"weights {found['weights']}; ± is one standard error over questions")
    return [plain(line, "") for line in lines]


def score(mean: float | None, error: float | None) -> str:
    """A score with its standard error."""
    if mean is None:
        return NONE
    return f"{_number(mean)} ± {_number(error)}" if error is not None else _number(mean)


def shown(value: float | None, form: str) -> str:
    return NONE if value is None else f"{value:{form}}"


def stops(one: Mapping[str, Any]) -> str:
    """Stop reasons with their shares of the rows, the most frequent first."""
    rows = one["measured_rows"]
    return ", ".join(f"{reason} {count / rows:.0%}" for reason, count in one["stops"].items())


def missing(found: Mapping[str, Any]) -> Iterator[str]:
    """One sentence for each suite with unscored rows, then one for each such row."""
    for suite in found["suites"]:
        counts = [
            f"{suite[key]} {words}"
            for key, words in (
                ("open", "not run yet"),
                (
                    "errored",
                    "errored: not scored, left out of the mean; run the same command again",
                ),
                ("bad_rows", "that cannot be used as tasks"),
            )
            if suite[key]
        ]
        if counts:
            yield f"{suite['name']}, of {suite['rows']}: {'; '.join(counts)}"
    for one in found["without_a_score"]:
        yield f"  {one['suite']} {one['index']} ({one['task_id']}): {one['reason']}"


def warnings(found: Mapping[str, Any]) -> Iterator[str]:
    """Warnings about suspicious sets.

    Two cases are reported: requests that were sent without a key of the recipe, and sets in which
    every row answered and every score is 0. The policy is seldom the cause of the second.
    """
    for one in found["sets"]:
        for name, count in one["sampled"].items():
            if name.startswith(LEFT_OUT):
                yield (
                    f"{one['name']}: {count:,} of {one['sampled']['actions']:,} actions were "
                    f"sampled without {name.removeprefix(LEFT_OUT)}: the server refuses it, so the "
                    "server's own value applied and not the recipe's"
                )
        rows = one["measured_rows"]
        if one["score"] == 0 and rows >= LEAST_ROWS and one["stops"] == {ANSWERED: rows}:
            yield (
                f"{one['name']}: all {rows} rows answered and every score is 0: compare an answer "
                "with its row's gold answer; a marker, quotation marks or another form may differ"
            )


def _cells(one: Mapping[str, Any]) -> list[str]:
    return [
        one["name"],
        f"{one['n']:,}",
        score(one["score"], one["standard_error"]),
        shown(one["calls"], ".2f"),
        shown(one["input_tokens"], ",.0f"),
        shown(one["output_tokens"], ",.0f"),
        shown(one["seconds"], ".2f"),
    ]


def _parts(found: Mapping[str, Any]) -> Iterator[str]:
    for one in found["sets"]:
        others = {name: part for name, part in one["parts"].items() if name != found["score"]}
        if others:
            text = (f"{name} {score(p['mean'], p['standard_error'])}" for name, p in others.items())
            yield f"{one['name']}: {', '.join(text)}"
        if one["rates"]:
            text = (f"{name} {rate(found)}" for name, found in one["rates"].items())
            yield f"{one['name']}, rates: {', '.join(text)}"


def _passes(found: Mapping[str, Any]) -> Iterator[str]:
    if found["samples"] > 1:
        yield f"a score is the mean over {found['samples']} samples a question (avg@k)"
    for one in found["sets"]:
        if one["pass_at"]:
            text = (
                f"pass@{k} {score(p['mean'], p['standard_error'])}"
                for k, p in one["pass_at"].items()
            )
            yield f"{one['name']}: {', '.join(text)}"


def _number(value: float) -> str:
    # A reward need not lie between 0 and 1.
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.4g}"
