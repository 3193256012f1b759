"""The rows of the warm-up: demonstrations, and exercises in what they need.

A demonstration without a look teaches only to guess. The other demonstrations are few, and only two
of their tokens show what a number looks like. So most rows train one part of the skill: what stands
where in a picture, or which number is on the cut-out. Others ask to look at a thing because the
question says so, which no question of the world does. Seeing comes first: the first rows are only
of the first two kinds.

Exercises use pictures of training. Those that read a number read one that a question of training
asks for.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from tasks.worlds.demonstrations import says

from .demonstrations import (
    PictureConversation,
    answer,
    at,
    caption,
    conversation,
    conversations,
    cut,
)
from .pictures import draw
from .task import PictureQuestion, questions

CAPTIONS, READINGS, ORDERS = 0.05, 0.25, 0.35
"""Shares of the rows after the first ones; the others are demonstrations."""
SEEN_CAPTIONS = 0.25
"""Share of the first rows; the others are readings, whose few tokens are slower to learn."""


def lessons(seed: int, seeing: int) -> Iterator[PictureConversation]:
    """Endless. seeing: rows of exercises in seeing that come first."""
    mix = random.Random(f"lessons {seed}")
    shown = conversations(seed)
    practised = questions("training", f"exercises {seed}")
    for _ in range(seeing):
        question = next(practised)
        yield captioned(question, mix) if mix.random() < SEEN_CAPTIONS else read(question)
    shares = (CAPTIONS, READINGS, ORDERS, 1 - CAPTIONS - READINGS - ORDERS)
    while True:
        (kind,) = mix.choices(("caption", "reading", "order", "demonstration"), shares)
        if kind == "demonstration":
            yield next(shown)
        elif kind == "caption":
            yield captioned(next(practised), mix)
        else:
            yield (read if kind == "reading" else ordered)(next(practised))


def captioned(question: PictureQuestion, mix: random.Random) -> PictureConversation:
    """The things as they stand, then once more in any order: where a thing is can be copied from
    what was said before."""
    scene = question.scene
    again = (at(scene, field) for field in mix.sample(range(4), 4))
    return _exercise("What stands where?", draw(scene), " ".join([caption(scene), *again]))


def read(question: PictureQuestion) -> PictureConversation:
    part = cut(draw(question.scene), question.field)
    return _exercise("Which number is this?", part, answer(int(question.answer)))


def ordered(question: PictureQuestion) -> PictureConversation:
    """One look, at the right thing."""
    told = conversation(question, [question.field])
    return replace(told, question=f"Look at the {question.colour} {question.noun}.")


def _exercise(asked: str, picture: bytes, said: str) -> PictureConversation:
    return PictureConversation(question=asked, turns=(says(said),), pictures=(picture,))
