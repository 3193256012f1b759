"""Finds the set of a paper's table that each suite of a run is; pure.

A suite is a set if their names differ at most in case, blanks and signs. It is also a set if one
name is a known alias of the other. The user must name any other pair: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.offline.reference.papers import PaperTable, ReferenceFault

ALIASES: Mapping[str, str] = {
    "naturalquestions": "nq",
    "nqopen": "nq",
    "trivia": "triviaqa",
    "hotpot": "hotpotqa",
    "2wikimultihopqa": "2wiki",
    "2wikimultihop": "2wiki",
    "wikimultihopqa": "2wiki",
    "aime2024": "aime24",
    "aime2025": "aime25",
    "amc": "amc23",
    "amc2023": "amc23",
    "minervamath": "minerva",
    "olympiadbench": "olympiad",
    "spiderdevelopment": "spiderdev",
    "vstar": "v*",
    "vstarbench": "v*",
    "swebenchverified": "sweverified",
    "malformed": "malformedcalls",
    "disagreement": "slotsthatdisagree",
}
"""Aliases of sets; both names as `plain` writes them."""


def plain(name: str) -> str:
    """A name without case, blanks and signs. A star stays, since V* has one."""
    letters = "".join(c for c in name.lower() if c.isalnum() or c == "*")
    return ALIASES.get(letters, letters)


def matched(
    suites: Iterable[str], table: PaperTable, said: Mapping[str, str] | None = None
) -> tuple[dict[str, str], tuple[str, ...]]:
    """(set by suite, suites that are not a set of the table).

    said: the user's pairs of suite and set, which win over names. Raises ReferenceFault for an
    unknown suite or set, and for two suites that are one set.
    """
    suites = tuple(suites)
    sets = {plain(name): name for name in table.sets}
    said = dict(said or {})
    for suite, name in said.items():
        if suite not in suites:
            raise ReferenceFault(f"no suite {suite!r}: there are {', '.join(suites) or 'none'}")
        if plain(name) not in sets:
            raise ReferenceFault(f"table {table.id} has no set {name!r}: {', '.join(table.sets)}")
    found: dict[str, str] = {}
    for suite in suites:
        one = sets.get(plain(said.get(suite, suite)))
        if one is None:
            continue
        twin = next((other for other, taken in found.items() if taken == one), None)
        if twin is not None:
            raise ReferenceFault(
                f"suites {twin!r} and {suite!r} are both {one}: leave one out, or say which set "
                "each is"
            )
        found[suite] = one
    return found, tuple(suite for suite in suites if suite not in found)


def assignments(texts: Iterable[str]) -> dict[str, str]:
    """Pairs of a command line's ["SUITE=SET", ...]. Raises ReferenceFault for other texts."""
    found: dict[str, str] = {}
    for text in texts:
        suite, sign, name = text.partition("=")
        if not (sign and suite.strip() and name.strip()):
            raise ReferenceFault(f"{text!r}: write SUITE=SET, such as heldout=HotpotQA")
        if suite.strip() in found:
            raise ReferenceFault(f"suite {suite.strip()!r} is said to be two sets")
        found[suite.strip()] = name.strip()
    return found
