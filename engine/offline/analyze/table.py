"""The findings as lines for a terminal. Pure.

Names come from policies, so control characters are removed from every line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.offline.text_table import NONE, aligned, rate
from toolwright.page.text import plain

MOST_TOOLS = 10
MOST_WORDS = 12
LONGEST_NAME = 40
SIZES = ("simple", "moderate", "complex", "unknown")


def table(found: Mapping[str, Any]) -> list[str]:
    """The lines of the findings."""
    lines = [
        f"{found['invocations']:,} invocations of {found['unique_tools']:,} unique tools (name and "
        f"schema) in {found['trajectories']:,} trajectories",
        law(found),
        *(f"note: {note}" for note in remarks(found)),
    ]
    if found["rates"]:
        lines += ["", *_rates(found)]
    if found["unique_tools"]:
        for part in (_domains, _complexity, _functions, _tools):
            lines += ["", *part(found)]
        words = ", ".join(f"{one['word']} {one['tools']:,}" for one in found["words"][:MOST_WORDS])
        lines += ["", f"words, by how many tools have them: {words or 'none'}"]
    return [plain(line, "") for line in lines]


def law(found: Mapping[str, Any]) -> str:
    """The fit as a sentence."""
    fitted = found["power_law"]
    if fitted is None:
        return "no rank-frequency law: it needs two tools"
    r2 = (
        "undefined, all are called equally often" if fitted["r2"] is None else f"{fitted['r2']:.4f}"
    )
    return f"rank-frequency law: exponent {fitted['exponent']:.4f}, R2 {r2}"


def remarks(found: Mapping[str, Any]) -> Iterator[str]:
    """Sentences on what the numbers leave out and what the recordings lack."""
    lacking, many = found["without_schema"], found["unique_tools"]
    if lacking["tools"]:
        yield (
            f"{lacking['tools']:,} of {many:,} tools, {lacking['invocations']:,} invocations, have "
            "no recorded schema: their name identifies them and their complexity is unknown; "
            "without a "
            "description, the name alone decides their classes"
        )
    if found["nameless_calls"]:
        yield f"{found['nameless_calls']:,} calls name no tool and are in no count"
    if found["invocations_beyond_the_bound"]:
        yield (
            f"{found['invocations_beyond_the_bound']:,} invocations are of tools beyond the first "
            f"{many:,}: they are in the number of invocations and in nothing else"
        )
    yield from found["notes"]


def _rates(found: Mapping[str, Any]) -> Iterator[str]:
    rows = [[_cut(cells[0]), *cells[1:]] for cells in rate_rows(found)]
    yield from aligned([rate_head(found), *rows], right=())
    yield "± is one standard error, with the trajectories of one question as a cluster"
    if other := found.get("compared"):
        yield f"B: {other['recording']}; the two count as independent"


def rate_head(found: Mapping[str, Any]) -> list[str]:
    """Heads of the columns of `rate_rows`."""
    return ["rate", "A", "B", "B - A", "p"] if "compared" in found else ["rate", ""]


def rate_rows(found: Mapping[str, Any]) -> Iterator[list[str]]:
    """Cells of each rate; those of both recordings if two are compared."""
    if "compared" not in found:
        for name, one in found["rates"].items():
            yield [name, rate(one)]
        return
    for one in found["compared"]["rates"]:
        sides = (rate(one[side]) for side in "ab")
        yield [one["name"], *sides, _difference(one), _p(one["p"])]


def _difference(one: Mapping[str, Any]) -> str:
    form, digits = ("+.1%", ".1%") if one["a"].get("share") else ("+.3g", ".2g")
    error = one["standard_error"]
    also = "" if error is None else f" ± {error:{digits}}"
    return f"{one['difference']:{form}}{also}"


def _p(value: float | None) -> str:
    return NONE if value is None else f"{value:.2g}"


def _domains(found: Mapping[str, Any]) -> Iterator[str]:
    tiers = found["tiers"]
    head = ["domain", "tools", "invocations", *(f"{tier['tier']} tier" for tier in tiers)]
    rows = [head]
    for place, one in enumerate(found["domains"]):
        inside = [f"{tier['domains'][place]['tools']:,}" for tier in tiers]
        rows.append([_cut(one["name"]), f"{one['tools']:,}", f"{one['invocations']:,}", *inside])
    total = [f"{tier['tools']:,}" for tier in tiers]
    rows.append(["all", f"{found['unique_tools']:,}", f"{found['invocations']:,}", *total])
    called = [f"{tier['invocations']:,}" for tier in tiers]
    rows.append(["their invocations", "", "", *called])
    yield from aligned(rows, right=range(1, len(head)))
    yield (
        "tiers: thirds of the invocations, from the most called tool downwards; a tool is in the "
        "tier in which its first invocation falls"
    )


def _complexity(found: Mapping[str, Any]) -> Iterator[str]:
    rows = [["complexity", *SIZES]]
    rows += [
        [_cut(one["domain"]), *(f"{one[size]:,}" for size in SIZES)] for one in found["complexity"]
    ]
    yield from aligned(rows, right=range(1, len(SIZES) + 1))


def _functions(found: Mapping[str, Any]) -> Iterator[str]:
    rows = [["function", "tools", "invocations"]]
    rows += [
        [_cut(one["name"]), f"{one['tools']:,}", f"{one['invocations']:,}"]
        for one in found["functions"]
    ]
    yield from aligned(rows, right=(1, 2))


def _tools(found: Mapping[str, Any]) -> Iterator[str]:
    rows: list[Sequence[str]] = [["rank", "invocations", "tool", "domain", "complexity"]]
    for one in found["tools"][:MOST_TOOLS]:
        called = f"{one['invocations']:,}"
        rows.append(
            [str(one["rank"]), called, _cut(one["name"]), _cut(one["domain"]), one["complexity"]]
        )
    yield from aligned(rows, right=(0, 1))


def _cut(name: str) -> str:
    name = plain(name, "")
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 3] + "..."
