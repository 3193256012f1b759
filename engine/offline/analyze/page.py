"""The findings as one file, by the blocks of `toolwright.page`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.offline.analyze.table import SIZES, law, rate_head, rate_rows, remarks
from toolwright.page.document import (
    Block,
    bar,
    charts,
    document,
    facts,
    heading,
    listed,
    note,
    table,
)
from toolwright.page.plot import Plot, line, plot


def page(found: Mapping[str, Any], title: str) -> str:
    """The page of `findings`. title: names of the recordings."""
    blocks = [
        listed(remarks(found)),
        facts(_tiles(found)),
        *(_rates(found) if found["rates"] else ()),
        *(_tools(found) if found["unique_tools"] else ()),
        note("The numbers are those of `engine analyze --json`."),
    ]
    return document(f"Tools of {title}", blocks)


def _tiles(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    fitted = found["power_law"]
    tiles = [
        ("invocations", f"{found['invocations']:,}"),
        ("unique tools, by name and schema", f"{found['unique_tools']:,}"),
        ("trajectories", f"{found['trajectories']:,}"),
    ]
    if fitted is not None:
        tiles.append(("exponent of the rank-frequency law", f"{fitted['exponent']:.3f}"))
        if fitted["r2"] is not None:
            tiles.append(("R2 of its fit", f"{fitted['r2']:.4f}"))
    return tiles


def _rates(found: Mapping[str, Any]) -> Iterator[Block | None]:
    compared = found["compared"]
    beside = f" B: {compared['recording']}; the two count as independent." if compared else ""
    yield heading("Rates")
    yield table(rate_head(found), rate_rows(found))
    yield note(
        "± is one standard error, with the trajectories of one question as a cluster." + beside
    )


def _tools(found: Mapping[str, Any]) -> Iterator[Block | None]:
    many = f"over {found['unique_tools']:,} tools"
    said = f"{law(found)}: least squares of ln invocations on ln rank {many}."
    yield charts([_ranks(found)], title="Rank and frequency", text=said)
    yield heading("Domains")
    tiers = found["tiers"]
    yield table(
        ["domain", "tools", "invocations", *(f"{tier['tier']} tier" for tier in tiers)],
        (
            [
                *(one["name"], f"{one['tools']:,}", f"{one['invocations']:,}"),
                *(f"{tier['domains'][place]['tools']:,}" for tier in tiers),
            ]
            for place, one in enumerate(found["domains"])
        ),
    )
    yield note(
        "Thirds of the invocations, from the most called tool downwards: a tool is in the tier in "
        "which its first invocation falls, so one that is called very often can leave the next "
        "tier empty."
    )
    for tier in tiers:
        tools = f"{tier['tools']:,} tool{'' if tier['tools'] == 1 else 's'}"
        title = f"{tier['tier']} tier: {tools}, {tier['invocations']:,} invocations"
        yield _bar(title, tier["domains"])
    yield heading("Function types")
    yield _bar("", found["functions"])
    yield table(
        ("function", "tools", "invocations"),
        (
            (one["name"], f"{one['tools']:,}", f"{one['invocations']:,}")
            for one in found["functions"]
        ),
    )
    yield heading("Complexity")
    yield note(
        "Score: parameters, levels of nesting and bounds of values added up; at most 2 is simple, "
        "3 to 5 moderate, more complex. Tools, not invocations."
    )
    yield table(
        ["domain", *SIZES],
        ([one["domain"], *(f"{one[size]:,}" for size in SIZES)] for one in found["complexity"]),
    )
    yield heading("The tools that are called most")
    yield table(
        ("rank", "tool", "invocations", "domain", "function", "complexity"),
        (
            (
                one["rank"],
                {"code": one["name"]},
                f"{one['invocations']:,}",
                *(one["domain"], one["function"], str(one["complexity"])),
            )
            for one in found["tools"]
        ),
    )
    yield heading("Words")
    words = ", ".join(f"{one['word']} {one['tools']:,}" for one in found["words"])
    yield note(f"By how many tools have the word in name or description: {words or 'none'}.")


def _ranks(found: Mapping[str, Any]) -> Plot | None:
    """Invocations by rank with the fitted line, both axes logarithmic."""
    ranks = found["ranks"]
    if len(ranks) < 2:
        return None
    seen = [(one["rank"], one["invocations"]) for one in ranks]
    fitted = [(one["rank"], one["fitted"]) for one in (ranks[0], ranks[-1])]
    lines = [
        line("tools", "c0", seen, "seen"),
        line("fitted", "c1 dash1", fitted, "none"),
    ]
    drawn = plot("ranks", "Invocations by rank", "invocations", lines, log=True)
    return None if drawn is None else drawn | {"axis": "rank", "log_x": True, "wide": True}


def _bar(title: str, classes: Sequence[Mapping[str, Any]]) -> Block | None:
    """Invocations of the classes as one bar; a class keeps its colour."""
    total = sum(one["invocations"] for one in classes)
    if not total:
        return None
    return bar(
        title,
        ((one["name"], one["invocations"], f"{one['invocations'] / total:.1%}") for one in classes),
    )
