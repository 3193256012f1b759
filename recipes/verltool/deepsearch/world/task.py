"""The demonstration's questions: several look-ups, and a sum that takes a program.

How many people share one km2 of Chad? Its people, its area, a division. Questions are of three
sorts, by what has to be looked up:

- `pairs`: two figures, and one operation on them
- `densities`: four, and the difference of two quotients
- `borders`: a country's neighbours, then a figure of each, and their sum

No wording names its operation. One country in five is held out, by its name: no question of
training is about it, and no answer of training has a figure of it.

    python -m toolwright.script world/task.py --output corpus.jsonl     # what the tool searches

It knows nothing of tokens, tools or how the policy is trained.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from pathlib import Path

from tasks.worlds.questions import OPERATIONS, held_out, passages_program, question_task
from tasks.worlds.rounds import in_turn, rounds
from toolwright.text.sections import sections
from toolwright.types import Task

from .lands import NEIGHBOURS, Lands, lands, passages

DIVIDED = "//"
PAIRS, DENSITIES, BORDERS = "pairs", "densities", "borders"
MOST_NEIGHBOURS = 2
"""Most neighbours of a country whose neighbours are asked about: five calls are all that a
trajectory has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A fact of a country; `figure`: what the search finds, 0 where it finds names."""

    fact: str
    name: str
    figure: int = 0


Terms = tuple[tuple[Fact, ...], ...]
"""Figures: within a term they are divided, and the sign of the question joins the terms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """One thing that can be asked, in wordings that mean the same.

    terms: facts of {a} and {b}, "people a" say. all_of: in their place, the fact that is added up
    over a country and its neighbours.
    """

    sort: str
    sign: str
    terms: tuple[tuple[str, ...], ...] = ()
    all_of: str = ""
    wordings: tuple[str, ...]

    @property
    def countries(self) -> int:
        """How many a question names."""
        return 2 if "{b}" in self.wordings[0] else 1


def _kinds() -> Iterator[Asking]:
    """What wordings.txt says: headings are `SORT SIGN FACTS`, with figures to divide joined by
    `per`, or with `all FACT`."""
    for heading, text in sections(Path(__file__).with_name("wordings.txt")).items():
        sort, sign, facts = heading.split(" ", 2)
        all_of = facts.removeprefix("all ") if facts.startswith("all ") else ""
        terms = () if all_of else tuple(tuple(one.split(" per ")) for one in facts.split(", "))
        lines = tuple(text.splitlines())
        yield Asking(sort=sort, sign=sign, terms=terms, all_of=all_of, wordings=lines)


KINDS = tuple(_kinds())


@dataclass(frozen=True, slots=True, kw_only=True)
class FactQuestion:
    """first: a search that says which other countries it is about."""

    kind: Asking
    names: tuple[str, ...]
    text: str
    first: Fact | None
    terms: Terms

    @property
    def answer(self) -> int:
        return result(self.terms, self.kind.sign)


def result(terms: Terms, sign: str) -> int:
    """What the program of `written` prints. Raises ZeroDivisionError."""
    divided = (reduce(operator.floordiv, (look.figure for look in term)) for term in terms)
    return reduce(OPERATIONS[sign], divided)


def written(terms: Terms, sign: str) -> str:
    """As Python: terms of several figures bind closer than + and -."""
    return sign.join(DIVIDED.join(str(look.figure) for look in term) for term in terms)


def ask(kind: Asking, wording: int, names: Sequence[str], known: Lands) -> FactQuestion | None:
    """About these countries, in the order in which the answer is above 0. None where neither order
    has one, or where the country has no neighbours or too many."""
    for order in (tuple(names), tuple(reversed(names))):
        places = dict(zip("ab", order, strict=False))
        first, terms = _looks(kind, places, known)
        if terms and result(terms, kind.sign) > 0:
            text = kind.wordings[wording].format(**places)
            return FactQuestion(kind=kind, names=order, text=text, first=first, terms=terms)
    return None


def training(seed: int) -> Iterator[Task]:
    """Endless: pairs, densities, pairs, borders, and so on."""
    sorts = (PAIRS, DENSITIES, PAIRS, BORDERS)
    streams = [_endless(sort, f"training {seed} {place}") for place, sort in enumerate(sorts)]
    return _tasks("train", in_turn(*streams))


def pairs(seed: int) -> Iterator[Task]:
    """Endless: about held-out countries alone, as the next one."""
    return _tasks("heldout", _endless(PAIRS, f"heldout {seed}", held=True))


def densities(seed: int) -> Iterator[Task]:
    return _tasks("heldout", _endless(DENSITIES, f"heldout {seed}", held=True))


def borders(seed: int) -> Iterator[Task]:
    """Endless: about held-out countries; their neighbours may be others."""
    return _tasks("heldout", _endless(BORDERS, f"heldout {seed}", held=True))


def _looks(kind: Asking, places: Mapping[str, str], known: Lands) -> tuple[Fact | None, Terms]:
    def look(fact: str, name: str) -> Fact:
        return Fact(fact=fact, name=name, figure=known[name].figure(fact))

    if not kind.all_of:
        told = (tuple(one.split() for one in term) for term in kind.terms)
        return None, tuple(tuple(look(fact, places[at]) for fact, at in term) for term in told)
    (name,) = places.values()
    near = known[name].neighbours
    if not 1 <= len(near) <= MOST_NEIGHBOURS:
        return None, ()
    terms = tuple((look(kind.all_of, one),) for one in (name, *near))
    return Fact(fact=NEIGHBOURS, name=name), terms


def _endless(sort: str, drawn: str, *, held: bool = False) -> Iterator[FactQuestion]:
    """The wordings of a sort in turn, each through all its countries, and again."""
    draw = random.Random(drawn)
    wordings = [
        _about_all(kind, wording, draw, held=held)
        for kind in KINDS
        if kind.sort == sort
        for wording in range(len(kind.wordings))
    ]
    return in_turn(*wordings)


def _about_all(
    kind: Asking, wording: int, draw: random.Random, *, held: bool
) -> Iterator[FactQuestion]:
    names = [name for name in lands() if held_out(name) is held]
    for chosen in rounds(combinations(names, kind.countries), draw):
        found = ask(kind, wording, chosen, lands())
        if found is not None and (held or not _has_held_out(found)):
            yield found


def _has_held_out(question: FactQuestion) -> bool:
    return any(held_out(look.name) for term in question.terms for look in term)


def _tasks(name: str, stream: Iterator[FactQuestion]) -> Iterator[Task]:
    for number, one in enumerate(stream):
        sort = one.kind.sort
        yield question_task(f"{name}-{sort}-{number}", one.text, one.answer, source=sort, sort=sort)


main = passages_program(lambda: passages(lands()))
