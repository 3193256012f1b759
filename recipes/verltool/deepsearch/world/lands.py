"""The countries of the demonstration: what is told of each, in thousands, and in which words.

Area, people and neighbours are those of GeoNames (tasks.worlds.atlas), rounded to thousands of km2
and of people, so that a density is the one divided by the other. `invented` has the same names with
other figures and neighbours: demonstrations are set there, and teach no fact.

It knows nothing of questions, tools or tokens.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from tasks.worlds import atlas

LEAST_AREA, LEAST_PEOPLE = 10_000, 1_000_000
"""In km2 and people: smaller countries are left out, their thousands say little."""
AREA, PEOPLE, NEIGHBOURS = "area", "people", "neighbours"
FACTS = (AREA, PEOPLE, NEIGHBOURS)
UNITS: Mapping[str, str] = {AREA: " thousand km2.", PEOPLE: " thousand."}
MOST_INVENTED = 3
"""Neighbours of a country in an invented world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Land:
    """area: in thousand km2; people: in thousands. neighbours: names, in the alphabet's order."""

    name: str
    area: int
    people: int
    neighbours: tuple[str, ...]

    def figure(self, fact: str) -> int:
        """AREA or PEOPLE."""
        return self.area if fact == AREA else self.people

    def told(self, fact: str) -> tuple[str, str]:
        """Title and text of a passage. Name and fact stand in both, so that a search by words finds
        it before the passages that name this country as a neighbour."""
        if fact == NEIGHBOURS:
            value = f"{', '.join(self.neighbours) or 'none'}."
        else:
            value = f"{self.figure(fact)}{UNITS[fact]}"
        return f"{fact.capitalize()} of {self.name}", f"{self.name}, {fact}: {value}"


Lands = Mapping[str, Land]
"""By name."""


@lru_cache(maxsize=1)
def lands() -> Lands:
    """The real ones. A neighbour that is left out itself is no neighbour here."""
    kept = {
        code: country
        for code, country in atlas.countries().items()
        if country.area >= LEAST_AREA and country.people >= LEAST_PEOPLE
    }
    return {
        country.name: Land(
            name=country.name,
            area=round(country.area / 1000),
            people=round(country.people / 1000),
            neighbours=tuple(
                sorted(kept[code].name for code in country.neighbours if code in kept)
            ),
        )
        for country in kept.values()
    }


def invented(draw: random.Random) -> Lands:
    """The same names in another world. Figures have as many digits as the real ones have."""
    names = sorted(lands())
    return {name: _invented(name, names, draw) for name in names}


def _invented(name: str, names: list[str], draw: random.Random) -> Land:
    near = {one for one in draw.sample(names, draw.randint(1, MOST_INVENTED)) if one != name}
    return Land(
        name=name,
        area=int(10 ** draw.uniform(1, 4)),
        people=int(10 ** draw.uniform(3, 6)),
        neighbours=tuple(sorted(near)),
    )


def passages(known: Lands) -> Iterator[dict[str, str]]:
    """The corpus, one fact a passage: what is asked for takes a search each."""
    told = (land.told(fact) for land in known.values() for fact in FACTS)
    for number, (title, text) in enumerate(told):
        yield {"id": f"{number}", "contents": f'"{title}"\n{text}'}
