"""The numbers of a tally, as data for --json, the table and the page. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from engine.offline.analyze.power_law import power_law
from engine.offline.analyze.schema import Size
from engine.offline.analyze.tally import CountedTool, ToolTally

TIERS = ("high", "medium", "low")
MOST_TOOLS = 30
"""Number of tools that are named, from the most called one on."""
MOST_WORDS = 40
"""Number of words that are listed."""
_RARE = "there are more different words than are kept: rare ones are missing or counted too low"
POINTS = 200
"""Number of ranks in a plot, at even steps of their logarithm."""


def findings(tally: ToolTally, notes: Iterable[str] = ()) -> dict[str, Any]:
    """The data of --json. notes: sentences on what the recordings lack."""
    tools = tally.tools
    domains = tally.vocabulary.domains.names
    functions = tally.vocabulary.functions.names
    fitted = power_law(tool.count for tool in tools)
    return {
        "trajectories": tally.trajectories,
        "invocations": tally.invocations,
        "unique_tools": len(tools),
        "nameless_calls": tally.nameless,
        "invocations_beyond_the_bound": tally.beyond,
        "rates": tally.rates.shown(),
        "without_schema": _both([tool for tool in tools if tool.size is Size.UNKNOWN]),
        "notes": [*notes, *([_RARE] if tally.rare_words_dropped else [])],
        "domains": _classes(tools, domains, lambda tool: tool.domain),
        "tiers": _tiers(tools, domains),
        "functions": sorted(
            _classes(tools, functions, lambda tool: tool.function),
            key=lambda one: -one["invocations"],
        ),
        "complexity": _complexity(tools, domains),
        "words": [
            {"word": word, "tools": count}
            for word, count in sorted(tally.words.items(), key=lambda one: (-one[1], one[0]))[
                :MOST_WORDS
            ]
        ],
        "power_law": None
        if fitted is None
        else {
            "exponent": fitted.exponent,
            "log_c": fitted.log_c,
            "r2": fitted.r2,
            "tools": len(tools),
        },
        "ranks": [
            {
                "rank": rank,
                "invocations": tools[rank - 1].count,
                "fitted": None if fitted is None else fitted.at(rank),
            }
            for rank in _spread(len(tools))
        ],
        "tools": [
            {
                "rank": rank,
                "name": tool.name,
                "invocations": tool.count,
                "domain": domains[tool.domain],
                "function": functions[tool.function],
                "complexity": str(tool.size),
            }
            for rank, tool in enumerate(tools[:MOST_TOOLS], 1)
        ],
    }


def tier_of(before: int, total: int) -> str:
    """The tercile of the cumulated invocations in which a tool lies.

    before: invocations of tools with a lower rank number. total: all invocations.
    """
    return TIERS[min(2, 3 * before // total)]


def _tiers(tools: Sequence[CountedTool], domains: Sequence[str]) -> list[dict[str, Any]]:
    total, before = sum(tool.count for tool in tools), 0
    split: dict[str, list[CountedTool]] = {name: [] for name in TIERS}
    for tool in tools:
        split[tier_of(before, total)].append(tool)
        before += tool.count
    return [
        {
            "tier": name,
            **_both(inside),
            "domains": _classes(inside, domains, lambda tool: tool.domain),
        }
        for name, inside in split.items()
    ]


def _classes(
    tools: Sequence[CountedTool], names: Sequence[str], of: Callable[[CountedTool], int]
) -> list[dict[str, Any]]:
    """One row for each class in the vocabulary's order, empty ones included."""
    counted: Counter[int] = Counter()
    called: Counter[int] = Counter()
    for tool in tools:
        counted[of(tool)] += 1
        called[of(tool)] += tool.count
    return [
        {"name": name, "tools": counted[place], "invocations": called[place]}
        for place, name in enumerate(names)
    ]


def _complexity(tools: Sequence[CountedTool], domains: Sequence[str]) -> list[dict[str, Any]]:
    counted = Counter((tool.domain, tool.size) for tool in tools)
    return [
        {"domain": name, **{str(size): counted[place, size] for size in Size}}
        for place, name in enumerate(domains)
    ]


def _both(tools: Sequence[CountedTool]) -> dict[str, int]:
    return {"tools": len(tools), "invocations": sum(tool.count for tool in tools)}


def _spread(count: int) -> list[int]:
    """Ranks from 1 to `count`, at even steps of their logarithm, without repeats."""
    if count <= POINTS:
        return list(range(1, count + 1))
    steps = (round(math.exp(math.log(count) * step / (POINTS - 1))) for step in range(POINTS))
    return sorted({min(count, max(1, rank)) for rank in steps})
