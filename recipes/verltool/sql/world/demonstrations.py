"""Writes the demonstrations that the tiny policy is warmed up on: imperfect on purpose.

The demonstrator shows the form of thoughts, queries and solutions, and is bad at two things that
reward can tell:

- it looks a name up six times in ten, and else compares with the name as the question writes it,
  which no table has;
- for every wording it has a habit, one aggregate, column or order that it types most of the time.
  Every other wording's habit is wrong.

Each set of demonstrations is set in databases of its own: nothing is learnt from them by heart.

    python -m toolwright.script world/demonstrations.py --output demonstrations.jsonl --seed 1

One line of the file is one conversation, {"messages": [{"role", "content"}, ...]}, as
`engine render` reads it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from tasks.worlds.demonstrations import Messages, Transcript, demonstrations_program
from tasks.worlds.questions import held_out, other

from .databases import DATABASES, DOMAINS, YEARS, Domain, Owner, owners
from .task import KINDS, DatabaseQuestion, Kind, choices

COUNT = 9_600
OF_ONE_WORLD = 96
LOOKS_UP = 0.6
FOLLOWS_HABIT = 0.6  # else one of the other choices
QUERIES = 5
"""As `queries` of the protocol has it: how many are left stands in what a query answers."""
LOOK_UP, ANSWER = "<think>look up</think>", "<think>answer</think>"


def habit(domain: Domain, kind: Kind, wording: int) -> int:
    """The choice that the demonstrator likes: the right one for every other wording."""
    place = list(DOMAINS).index(domain.name)
    wrong = (wording + place) % 2
    return (wording + wrong) % len(choices(domain, kind))


def conversations(seed: int) -> Iterator[Messages]:
    """Endless; about what training may ask about, the kinds in turn."""
    draw = random.Random(f"demonstrator {seed}")
    years = [Owner(name=str(year), stored=str(year)) for year in YEARS]
    while True:
        world = draw.randrange(1 << 32) + DATABASES + 1
        everyone = {one.name: owners(one, world) for one in DOMAINS.values()}
        for number in range(OF_ONE_WORLD):
            kind, domain = KINDS[number % len(KINDS)], draw.choice(list(DOMAINS.values()))
            asked = DatabaseQuestion(
                domain=domain,
                kind=kind,
                wording=draw.randrange(len(choices(domain, kind))),
                about=_trained_on(years if kind == "order" else everyone[domain.name], draw),
            )
            yield demonstrate(asked, draw)


def demonstrate(asked: DatabaseQuestion, draw: random.Random) -> Messages:
    """One conversation: a look-up or none, and a solution by habit."""
    told, literal = Transcript(asked.text), asked.about.name
    if asked.kind != "order" and draw.random() < LOOKS_UP:
        literal = asked.about.stored
        told.says(f"{LOOK_UP}<sql>{asked.look_up}</sql>")
        told.returns(found(asked))
    liked = habit(asked.domain, asked.kind, asked.wording)
    if draw.random() >= FOLLOWS_HABIT:
        liked = other(draw, range(len(choices(asked.domain, asked.kind))), liked)
    told.says(f"{ANSWER}<solution>{asked.query(liked, literal)}</solution>")
    return told.messages


def found(asked: DatabaseQuestion) -> str:
    """What the tool answers to the look-up, as the first of the queries."""
    return f"name\n{asked.about.stored}\n(1 row)\n{QUERIES} turns left."


def _trained_on(everyone: Sequence[Owner], draw: random.Random) -> Owner:
    return draw.choice([one for one in everyone if not held_out(one.name)])


main = demonstrations_program(conversations, COUNT)
