"""Writes the demonstrations that a pretrained model is warmed up on: imperfect on purpose.

They show the form of searches, notes and answers, about countries that training asks about. The
demonstrator is bad at what reward can teach. Every second time it makes one more search before it
answers, for something that no question asks for. Two times in five it answers with the name or the
capital of another country.

    python -m toolwright.script countries/conversations.py --output demonstrations.jsonl --seed 1

One line of the file is one conversation, {"messages": [{"role", "content"}, ...]}, as
`engine render` reads it.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from tasks.record import Record
from tasks.worlds import atlas
from tasks.worlds.atlas import Country
from tasks.worlds.demonstrations import Messages, Transcript, demonstrations_program
from tasks.worlds.questions import documents
from tasks.worlds.rounds import rounds

from .questions import SPLIT

COUNT = 400
GOES_ON = 0.5  # with a search that is not needed
ANSWERS_WRONG = 0.4
TOP = 2
"""Passages of a search, as search.topk has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedSearch:
    """A search, and what to note of what it finds."""

    query: str
    note: str


SEARCHES = {
    "capital": ("capital of {name}", "{capital} is the capital of {name}"),
    "currency": ("currency of {name}", "the currency of {name} is the {currency}"),
    "code": ("code {iso3}", "{iso3} is {name}"),
    "country": ("{capital} capital", "{capital} is the capital of {name}"),
}
"""Query and note of each search, with facts of a country."""
WAYS = {
    "capital-currency": ("country", "currency"),
    "code-capital": ("code", "capital"),
    "border-capital": ("capital",),
    "border-currency": ("currency",),
}
"""Searches of a question by its relation; the others take the search of their name."""


def search(what: str, country: Country) -> NotedSearch:
    """One search about a country."""
    query, note = (text.format(**asdict(country)) for text in SEARCHES[what])
    return NotedSearch(query=query, note=note)


def about(record: Record) -> str:
    """The code of the country that a question asks about."""
    return _codes(record)[0]


def looks(record: Record) -> list[NotedSearch]:
    """What has to be looked up for a question, in order."""
    known = atlas.countries()
    asked, *near = _codes(record)
    country = known[asked]
    relation = record.extra["relation"]
    found = [search(what, country) for what in WAYS.get(relation, (relation,))]
    if near:
        one, other = (known[neighbour].name for neighbour in near)
        note = f"{country.name} borders {one} and {other}"
        found.insert(0, NotedSearch(query=f"borders {one} and {other}", note=note))
    return found


class Shelf:
    """The passages. Its search finds what shares rare words with a query, the shorter first.
    So does BM25."""

    def __init__(self) -> None:
        self._passages: list[str] = []
        self._words: list[set[str]] = []
        self._lengths: list[int] = []
        for passage in atlas.passages(SPLIT):
            self._passages.append(passage["contents"])
            words = _words(passage["contents"])
            self._words.append(set(words))
            self._lengths.append(len(words))
        counts = Counter(word for words in self._words for word in words)
        self._rare = {word: math.log(len(self._passages) / n) for word, n in counts.items()}

    def search(self, query: str) -> str:
        """The observation."""
        wanted = set(_words(query))
        # fsum: the same score whatever the order of a set is.
        scores = [math.fsum(self._rare[one] for one in wanted & words) for words in self._words]
        order = sorted(range(len(scores)), key=lambda one: (-scores[one], self._lengths[one], one))
        best = order[:TOP]
        return documents(self._passages[one] for one in best)


def conversations(seed: int) -> Iterator[Messages]:
    """Endless, easy and hard questions as they come."""
    draw, shelf = random.Random(f"demonstrator {seed}"), Shelf()
    every = list(atlas.questions("train", SPLIT))
    others = [atlas.countries()[code] for code in sorted({about(record) for record in every})]
    for record in rounds(every, draw):
        yield demonstrate(record, draw, shelf, others)


def demonstrate(
    record: Record, draw: random.Random, shelf: Shelf, others: Sequence[Country]
) -> Messages:
    """One conversation: searches, each followed by its note, and an answer. `others`: countries of
    the training questions."""
    way = looks(record)
    another = draw.choice([one for one in others if one.code != about(record)])
    if draw.random() < GOES_ON:
        way.append(search(draw.choice(["currency", "capital"]), another))
    told, begun = Transcript(record.question), ""
    for look in way:
        told.says(f"{begun}<search>{look.query}</search>")
        told.returns(shelf.search(look.query))
        begun = f"<memory>{look.note}</memory>"
    wrong = draw.random() < ANSWERS_WRONG
    answer = draw.choice([another.name, another.capital]) if wrong else record.answer[0]
    told.says(f"{begun}<answer>{answer}</answer>")
    return told.messages


def _codes(record: Record) -> list[str]:
    """Codes of the country that is asked about, and of two neighbours if they point to it."""
    return record.id.removeprefix(f"atlas-{record.extra['relation']}-").split("-")


def _words(text: str) -> list[str]:
    kept = (letter if letter.isalnum() else " " for letter in text.lower())
    return "".join(kept).split()


main = demonstrations_program(conversations, COUNT)
