"""Writes the demonstrations that the tiny policy is warmed up on: imperfect on purpose.

The demonstrator knows which facts a question needs, and shows the form of searches, programs and
answers. It is bad at three things that reward can tell:

- it draws the operation by lot, whatever the wording asks for;
- one time in four it looks up half of what it needs, and takes that twice;
- one time in four it runs no program and guesses.

Each set of demonstrations is set in a world of its own with invented figures, so that nothing is
learnt by heart. Their questions name every country, held-out ones too: the policy has to have a
token for each, and no question shows a true figure.

    python -m toolwright.script world/demonstrations.py --output demonstrations.jsonl --seed 1

One line of the file is one conversation, {"messages": [{"role", "content"}, ...]}, as
`engine render` reads it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from tasks.worlds.demonstrations import Messages, Transcript, demonstrations_program
from tasks.worlds.questions import documents

from .lands import FACTS, Lands, invented
from .task import BORDERS, DENSITIES, KINDS, PAIRS, Fact, FactQuestion, ask, result, written

COUNT = 16_000
OF_ONE_WORLD = 32
SORTS = (PAIRS, DENSITIES, PAIRS, BORDERS)
SIGNS = {PAIRS: ("+", "-", "//"), DENSITIES: ("+", "-"), BORDERS: ("+", "-", "//")}
"""What the lot may say, the right one among them."""
HALF, GUESSES = 0.25, 0.25
TOP = 2
"""Passages of a search, as search.topk has them."""


def conversations(seed: int) -> Iterator[Messages]:
    """Endless."""
    draw = random.Random(f"demonstrator {seed}")
    while True:
        known = invented(draw)
        for place in range(OF_ONE_WORLD):
            question = draw_question(SORTS[place % len(SORTS)], known, draw)
            yield ResearchDemonstrator(question, known, draw).act()


def draw_question(sort: str, known: Lands, draw: random.Random) -> FactQuestion:
    """Some question of a sort; about any country."""
    names = sorted(known)
    kinds = [kind for kind in KINDS if kind.sort == sort]
    while True:
        kind = draw.choice(kinds)
        chosen = draw.sample(names, kind.countries)
        question = ask(kind, draw.randrange(len(kind.wordings)), chosen, known)
        if question is not None:
            return question


class ResearchDemonstrator(Transcript):
    """One conversation about one question."""

    def __init__(self, question: FactQuestion, known: Lands, draw: random.Random) -> None:
        super().__init__(question.text)
        self._known, self._draw = known, draw
        self._question = _halved(question) if draw.random() < HALF else question

    def act(self) -> Messages:
        """Writes the conversation."""
        question, draw = self._question, self._draw
        looks = [look for term in question.terms for look in term]
        for look in (question.first, *dict.fromkeys(looks)):
            if look is not None:
                self.says(f"<search>{look.fact} of {look.name}</search>")
                self.returns(self._found(look))
        sign = draw.choice(SIGNS[question.kind.sort])
        value = result(question.terms, sign)
        if draw.random() < GUESSES:
            value = draw.randrange(1, 2 * abs(value) + 10)
        else:
            self.says(f"<python>print({written(question.terms, sign)})</python>")
            self.returns(value)
        self.says(f"<answer>\\boxed{{{value}}}</answer>")
        return self.messages

    def _found(self, look: Fact) -> str:
        """The observation: the passage that answers, and another of the same country."""
        others = self._draw.sample([one for one in FACTS if one != look.fact], TOP - 1)
        told = (self._known[look.name].told(fact) for fact in (look.fact, *others))
        return documents("\n".join(passage) for passage in told)


def _halved(question: FactQuestion) -> FactQuestion:
    """With the figures of its first term in the place of all."""
    first, *_ = question.terms
    return replace(question, terms=(first,) * len(question.terms))


main = demonstrations_program(conversations, COUNT)
