"""A synthetic encyclopedia: its facts come from a seed, and all answers of a question are known.

People are born in towns and work for companies, towns have mayors and lie on rivers, and so on
(relations.py). Names are made of few pieces, so that a search finds namesakes as well; some towns
and companies have another name; and some facts have changed, which an almanac of an earlier year
still has the old way: the newer statement says since when, and it is the right one.

Owns facts, passages and questions. Invariants
- The same seed and shape give the same passages and questions, whatever else was drawn before.
- What a question asks for stands in the passages, hop by hop; it never leads back to its topic.
- A question of `train` has to do with no held-out entity: none is its topic, its answer, or on the
  way there. The topic of a question of `heldout` is held out.

It knows nothing of search tools, tokens or how a policy is trained.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tasks.worlds.names import draw_names, most
from tasks.worlds.relations import KINDS, RELATIONS, WORDINGS, Relation

Split = Literal["train", "heldout"]
HELD_OUT_SHARE = 5  # one entity in five, by a hash of its name, so that no piece of it tells
HOPS = (1, 2, 3)
CHANGED, OTHER_NAME = 0.25, 0.15
"""Shares: of facts that may change those that did, of towns and companies those with two names."""
EARLIER, LATER = range(1961, 1990), range(1996, 2020)
FILLER = (
    "More is found in the town archives.",
    "Little is known of the early years.",
    "A longer entry is in preparation.",
    "The first edition of this work gives no details.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How large an encyclopedia is, and how hard.

    people, towns, companies, rivers: how many there are. relations: the names of those that are
    told and asked; empty = all. wordings: how many of each relation's questions are used.
    notes: passages are lists of notes in one wording, without other names, changed facts or filler.
    """

    people: int = 240
    towns: int = 100
    companies: int = 100
    rivers: int = 50
    relations: tuple[str, ...] = ()
    wordings: int = WORDINGS
    notes: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError that names what cannot be made."""
        unknown = sorted(set(self.relations) - set(RELATIONS))
        if unknown:
            raise ValueError(f"relations {unknown}: there are {', '.join(RELATIONS)}")
        if not 1 <= self.wordings <= WORDINGS:
            raise ValueError(f"wordings = {self.wordings}: write a number from 1 to {WORDINGS}")
        for kind, count in self.counts.items():
            if count < 2:
                raise ValueError(f"{count} of kind {kind!r}: an encyclopedia needs two at least")

    @property
    def counts(self) -> Mapping[str, int]:
        """How many entities there are, by kind."""
        return dict(zip(KINDS, (self.people, self.towns, self.companies, self.rivers), strict=True))

    @property
    def told(self) -> tuple[Relation, ...]:
        """The relations that are told, in a fixed order."""
        return tuple(
            one for name, one in RELATIONS.items() if not self.relations or name in self.relations
        )

    def wordings_of(self, relation: Relation) -> tuple[str, ...]:
        """Questions and phrases of a relation, as they are used, with {x}."""
        return (*relation.questions[: self.wordings], *relation.phrases[: self.wordings])


SHAPE = Shape()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """value: of the relation now. before: an older value, "" without one, which held in
    the year `then`; the new one holds since the year `since`."""

    value: str
    before: str = ""
    then: int = 0
    since: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """answers: all that are right. path: names of relations, one a hop; chain: the entities that
    they lead through, from the topic to the (first) answer. wording: of the last relation.
    changed: an older statement somewhere on the way says otherwise."""

    id: str
    split: Split
    text: str
    answers: tuple[str, ...]
    path: tuple[str, ...]
    chain: tuple[str, ...]
    wording: int
    changed: bool

    @property
    def hops(self) -> int:
        return len(self.path)

    def row(self) -> dict[str, Any]:
        """As a row of a JSONL file that [task] `source` may name. The chain is not told: tools
        read metadata, and it has the answer."""
        told = {"task": "qa", "split": self.split, "hops": self.hops, "path": list(self.path)}
        return {
            "id": self.id,
            "data_source": "encyclopedia",
            "question": self.text,
            "answer": list(self.answers),
            "metadata": {**told, "changed": self.changed},
        }


def passages(seed: int, shape: Shape = SHAPE) -> Iterator[dict[str, str]]:
    """The corpus in Search-R1's layout: {"id", "contents"}, contents the title in quotation marks,
    a newline, the text."""
    return Encyclopedia(seed, shape).passages()


def questions(
    split: Split, seed: int, shape: Shape = SHAPE, hops: Collection[int] = HOPS
) -> Iterator[Question]:
    """All questions of a split, in random order; none twice. hops: of the questions that are asked;
    those of one hop include questions with several right answers."""
    return Encyclopedia(seed, shape).questions(split, hops)


def is_held_out(name: str) -> bool:
    """Whether an entity is kept from training."""
    return zlib.crc32(name.encode()) % HELD_OUT_SHARE == 0


_Asked = tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...], int, bool]
"""Parts of a question to be: text, answers, path, chain, wording, changed."""


class Encyclopedia:
    """The facts of one seed. `entities`: names by kind."""

    def __init__(self, seed: int, shape: Shape = SHAPE) -> None:
        """Raises ValueError if there are fewer names than entities."""
        self._name, self._shape = f"encyclopedia {seed}", shape
        draw = self._draw("facts")
        self.entities: Mapping[str, Sequence[str]] = {
            kind: draw_names(kind, count, draw) for kind, count in shape.counts.items()
        }
        self._held_out = {
            name for names in self.entities.values() for name in names if is_held_out(name)
        }
        self._facts: dict[tuple[str, str], Fact] = {}
        for relation in shape.told:
            for name in self.entities[relation.of]:
                self._facts[name, relation.name] = self._fact(relation, name, draw)
        self.other_names = {} if shape.notes else self._other_names(draw)

    def fact(self, name: str, relation: str) -> Fact:
        """Raises KeyError for an unknown entity or relation."""
        return self._facts[name, relation]

    def passages(self) -> Iterator[dict[str, str]]:
        draw = self._draw("passages")
        texts: list[tuple[str, str]] = []
        for kind, names in self.entities.items():
            told = [one for one in self._shape.told if one.of == kind]
            for name in names:
                if not told:
                    continue
                if self._shape.notes:
                    texts.append((name, self.note(name, told)))
                else:
                    texts.append((name, self._article(kind, name, told, draw)))
                    texts += self._almanacs(name, told)
        draw.shuffle(texts)
        for number, (title, text) in enumerate(texts):
            yield {"id": str(number), "contents": f'"{title}"\n{text}'}

    def note(self, name: str, told: Sequence[Relation]) -> str:
        """What is said of an entity, as a list of notes."""
        notes = (one.note.format(y=self.fact(name, one.name).value) for one in told)
        return f"{name}: {'; '.join(notes)}."

    def questions(self, split: Split, hops: Collection[int] = HOPS) -> Iterator[Question]:
        """Raises ValueError for another split or number of hops."""
        if split not in ("train", "heldout"):
            raise ValueError(f"split {split!r}: write 'train' or 'heldout'")
        if not hops or not set(hops) <= set(HOPS):
            raise ValueError(f"hops {sorted(hops)}: write some of {HOPS}")
        draw = self._draw(f"questions {split}")
        found = [
            self._asked(topic, path, draw)
            for kind, names in self.entities.items()
            for path in self._paths(kind, max(hops))
            if len(path) in hops
            for topic in names
        ]
        if 1 in hops and not self._shape.notes:
            found += self._several()
        fitting = [one for one in found if self._fits(one, split)]
        draw.shuffle(fitting)
        for number, one in enumerate(fitting):
            text, answers, path, chain, wording, changed = one
            yield Question(
                id=f"encyclopedia-{split}-{number}",
                split=split,
                text=text,
                answers=answers,
                path=path,
                chain=chain,
                wording=wording,
                changed=changed,
            )

    def _draw(self, what: str) -> random.Random:
        """A stream of its own for each thing that is drawn."""
        return random.Random(f"{self._name} {what}")

    def _fact(self, relation: Relation, name: str, draw: random.Random) -> Fact:
        if not relation.to:
            return Fact(value=draw.choice(relation.values))
        others = [one for one in self.entities[relation.to] if one != name]
        value, before = draw.sample(others, 2) if len(others) > 1 else (others[0], "")
        changed = draw.random() < CHANGED and relation.before and not self._shape.notes
        if not changed or not before:
            return Fact(value=value)
        then, since = draw.choice(EARLIER), draw.choice(LATER)
        return Fact(value=value, before=before, then=then, since=since)

    def _other_names(self, draw: random.Random) -> dict[str, str]:
        """Second names, which no other entity has; as many as the pieces of names give."""
        found: dict[str, str] = {}
        for kind in ("town", "company"):
            named = [one for one in self.entities[kind] if draw.random() < OTHER_NAME]
            taken = set(self.entities[kind])
            free = [one for one in draw_names(kind, most(kind), draw) if one not in taken]
            found.update(zip(named, free, strict=False))
        return found

    def _article(self, kind: str, name: str, told: Sequence[Relation], draw: random.Random) -> str:
        said = []
        for relation in told:
            fact = self.fact(name, relation.name)
            form = relation.since if fact.before else draw.choice(relation.sentences)
            said.append(form.format(x=name, y=fact.value, year=fact.since))
        draw.shuffle(said)
        if name in self.other_names:
            said.insert(0, f"{name} is also called {self.other_names[name]}.")
        like = [one for one in self.entities[kind] if one != name and one[:3] == name[:3]]
        if like:
            said.append(f"Not to be confused with {draw.choice(like)}.")
        said.insert(draw.randint(1, len(said)), draw.choice(FILLER))
        return " ".join(said)

    def _almanacs(self, name: str, told: Sequence[Relation]) -> Iterator[tuple[str, str]]:
        for relation in told:
            fact = self.fact(name, relation.name)
            if fact.before:
                text = relation.before.format(x=name, y=fact.before, year=fact.then)
                yield f"{name} (almanac of {fact.then})", text

    def _paths(self, kind: str, longest: int) -> Iterator[tuple[Relation, ...]]:
        """Ways from a kind of entity, one relation after the other."""
        for relation in self._shape.told:
            if relation.of != kind:
                continue
            yield (relation,)
            if longest > 1 and relation.to:
                for rest in self._paths(relation.to, longest - 1):
                    yield (relation, *rest)

    def _asked(self, topic: str, path: tuple[Relation, ...], draw: random.Random) -> _Asked:
        chain, about, changed = [topic], topic, False
        wording = draw.randrange(self._shape.wordings)
        for relation in path:
            fact = self.fact(chain[-1], relation.name)
            changed |= bool(fact.before)
            chain.append(fact.value)
            if relation is not path[-1]:
                phrases = relation.phrases[: self._shape.wordings]
                about = draw.choice(phrases).format(x=about)
        text = path[-1].questions[wording].format(x=about)
        names = tuple(one.name for one in path)
        return text, self._all_names(chain[-1]), names, tuple(chain), wording, changed

    def _several(self) -> Iterator[_Asked]:
        """Questions from a value to those that have it: any of them is right."""
        for relation in self._shape.told:
            if not relation.whose:
                continue
            having: dict[str, list[str]] = {}
            for name in self.entities[relation.of]:
                having.setdefault(self.fact(name, relation.name).value, []).append(name)
            for value, names in having.items():
                answers = [one for name in names for one in self._all_names(name)]
                text, path = relation.whose.format(y=value), (f"whose {relation.name}",)
                changed = any(
                    self.fact(name, relation.name).before == value
                    for name in self.entities[relation.of]
                )
                yield text, tuple(answers), path, (value, *names), 0, changed

    def _all_names(self, name: str) -> tuple[str, ...]:
        other = self.other_names.get(name)
        return (name, other) if other else (name,)

    def _fits(self, one: _Asked, split: Split) -> bool:
        topic, *way = one[3]
        if topic in way:
            return False  # it comes back to where it began
        if split == "heldout":
            return topic in self._held_out
        return self._held_out.isdisjoint((topic, *way))
