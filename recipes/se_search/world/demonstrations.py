"""Writes the demonstrations that the tiny policy is warmed up on: imperfect on purpose.

The demonstrator shows the form of searches, memory and answers. It is bad at three things, which
reward can show:

- it goes on searching when it could answer: half of the time once more, and so on;
- of a passage it often notes the other fact, not the one that the question is about;
- half of the time it answers with its first note, sometimes with the other fact in any case; it
  answers some hard questions with the result of the first search.

Each set of demonstrations is set in an encyclopedia of its own, with other facts than the one that
the policy is trained and asked in: no fact is learnt by heart.

    python -m toolwright.script world/demonstrations.py --output demonstrations.jsonl --seed 1

One line of the file is one conversation, {"messages": [{"role", "content"}, ...]}, as
`engine render` reads it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tasks.worlds.demonstrations import Messages, Transcript, demonstrations_program
from tasks.worlds.encyclopedia import Encyclopedia, Question
from tasks.worlds.questions import SHAPE, documents, other_encyclopedias
from tasks.worlds.relations import RELATIONS

COUNT = 9_600
NOTES_RIGHT = 0.6  # else the other fact of the passage
ANSWERS_FROM_NOTES = 0.5
READS_RIGHT = 0.8  # where it does not
GOES_ON = 0.5  # with a search that is not needed
MOST_MORE = 3
REPEATS = 0.2  # of those, the first query again
STOPS_EARLY = 0.15  # of hard questions
TOP = 2
"""Passages of a search, as search.topk has them."""


def conversations(seed: int) -> Iterator[Messages]:
    """Endless; about the entities that training may ask about, easy and hard ones in turn."""
    draw = random.Random(f"demonstrator {seed}")
    for encyclopedia, questions in other_encyclopedias(draw):
        book = Book(encyclopedia)
        for question in questions:
            yield SearchDemonstrator(book, question, draw).act()


def other(relation: str) -> str:
    """What else is told of the same kind of entity."""
    kind = RELATIONS[relation].of
    return next(one.name for one in SHAPE.told if one.of == kind and one.name != relation)


class Book:
    """An encyclopedia with a search that finds what shares words with a name, as the tool does."""

    def __init__(self, encyclopedia: Encyclopedia) -> None:
        self._encyclopedia = encyclopedia
        self._kinds = {
            name: kind for kind, names in encyclopedia.entities.items() for name in names
        }
        self._passages: list[str] = []
        self._holding: dict[str, list[int]] = {}
        for number, passage in enumerate(self._encyclopedia.passages()):
            self._passages.append(passage["contents"])
            for word in passage["contents"].replace('"', " ").split():
                self._holding.setdefault(word.strip(":;."), []).append(number)

    def search(self, name: str) -> str:
        """The observation: the passage of a name, then some that have a word of it."""
        counts: dict[int, int] = {}
        for word in name.split():
            for number in self._holding.get(word, ()):
                counts[number] = counts.get(number, 0) + 1
        best = sorted(counts, key=lambda number: (-counts[number], number))[:TOP]
        return documents(self._passages[one] for one in best)

    def told(self, name: str) -> list[str]:
        """Relations of an entity; a river has none."""
        return [one.name for one in SHAPE.told if one.of == self._kinds[name]]

    def value(self, name: str, relation: str) -> str:
        return self._encyclopedia.fact(name, relation).value


class SearchDemonstrator(Transcript):
    """One conversation about one question."""

    def __init__(self, book: Book, question: Question, draw: random.Random) -> None:
        super().__init__(question.text)
        self._book, self._question, self._draw = book, question, draw
        self._asked: list[tuple[str, str]] = []
        self._begun = ""

    def act(self) -> Messages:
        """Writes the conversation."""
        question, draw = self._question, self._draw
        about, *rest = question.chain[:-1]
        if rest:
            self._search(question.path[0], about)
            self._note(question.path[0], about)
            if draw.random() < STOPS_EARLY:
                return self._answered(rest[0])
            (about,) = rest
        asked = question.path[-1]
        noted = asked if draw.random() < NOTES_RIGHT else other(asked)
        read = asked if draw.random() < READS_RIGHT else other(asked)
        self._search(asked, about)
        self._note(noted, about)
        for _ in range(MOST_MORE):
            if draw.random() >= GOES_ON:
                break
            self._look_further(about)
        answered = noted if draw.random() < ANSWERS_FROM_NOTES else read
        return self._answered(self._book.value(about, answered))

    def _look_further(self, about: str) -> None:
        """A search that the question does not need."""
        found = [self._book.value(about, relation) for relation in self._book.told(about)]
        asked = {name for _, name in self._asked}
        new = [name for name in found if name not in asked and self._book.told(name)]
        if not new or self._draw.random() < REPEATS:
            relation, name = self._asked[-1]
        else:
            name = self._draw.choice(new)
            relation = self._draw.choice(self._book.told(name))
        self._search(relation, name)
        self._note(relation, name)

    def _search(self, relation: str, name: str) -> None:
        self._asked.append((relation, name))
        self.says(f"<search>{relation} of {name}</search>")
        self.returns(self._book.search(name))

    def _note(self, relation: str, name: str) -> None:
        note = RELATIONS[relation].note.format(y=self._book.value(name, relation))
        self._begun = f"<memory>{name} {note}</memory>"

    def _answered(self, value: str) -> Messages:
        self.says(f"<answer>{value}</answer>")
        return self.messages

    def says(self, text: str) -> None:
        super().says(self._begun + text)
        self._begun = ""


main = demonstrations_program(conversations, COUNT)
