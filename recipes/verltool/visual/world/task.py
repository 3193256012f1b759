"""The world of the demonstration: which number is on the red box?

Owns the questions, their order and which of them are held out; what a picture looks like is
pictures.py's. It knows nothing of tokens, tools or how the policy is trained.

Invariants
- The same seed and split give the same questions, and with one version of Pillow the same files.
- A held-out question asks for a colour, at a place, with a number, that no question of training
  asks for together.

    python -m toolwright.script world/task.py --output training.jsonl --split training --seed 1

writes rows of {"id", "prompt", "images", "answer", "metadata"}, and the pictures into a folder
`training` beside them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from toolwright.script import Output

from .pictures import COLOURS, KINDS, SIDE, Kind, Scene, draw, number_box

Split = Literal["training", "heldout"]

COUNTS: Mapping[Split, int] = {"training": 768, "heldout": 128}
"""Questions that a file holds; `questions` goes on without end."""
NOUNS: Mapping[Kind, str] = {"shelf": "box", "chart": "bar", "page": "page"}
NUMBERS = range(10, 100)
"""Two digits, so that guessing is worth nothing."""
_NAMES = tuple(COLOURS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureQuestion:
    """Which number is on the thing of that colour, in a scene that has one."""

    scene: Scene
    colour: str

    @property
    def text(self) -> str:
        return f"Which number is on the {self.colour} {self.noun}?"

    @property
    def noun(self) -> str:
        return NOUNS[self.scene.kind]

    @property
    def field(self) -> int:
        """Where to look."""
        return self.scene.field_of(self.colour)

    @property
    def answer(self) -> str:
        return str(self.scene.numbers[self.field])

    @property
    def split(self) -> Split:
        """By colour, place and number: every fifth of these triples is held out."""
        triple = 3 * _NAMES.index(self.colour) + 2 * self.field + 7 * int(self.answer)
        return "training" if triple % 5 else "heldout"


def questions(split: Split, seed: int | str) -> Iterator[PictureQuestion]:
    """Endless."""
    draw_of = random.Random(f"{split} {seed}")
    while True:
        colours = draw_of.sample(_NAMES, 4)
        scene = Scene(
            kind=draw_of.choice(KINDS),
            colours=(colours[0], colours[1], colours[2], colours[3]),
            numbers=tuple(draw_of.choices(NUMBERS, k=4)),
        )
        question = PictureQuestion(scene=scene, colour=draw_of.choice(colours))
        if question.split == split:
            yield question


def row(question: PictureQuestion, name: str, picture: str) -> dict[str, Any]:
    """As the engine reads it. The box is for figures: no part of the reward knows it."""
    box = [round(side / SIDE, 4) for side in number_box(question.field)]
    return {
        "id": name,
        "data_source": question.scene.kind,
        "prompt": question.text,
        "images": [picture],
        "answer": question.answer,
        "metadata": {"box": box},
    }


def write(file: Path, split: Split, *, seed: int, count: int) -> None:
    """Writes rows and pictures."""
    pictures = file.with_suffix("")
    pictures.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8") as rows:
        for number, question in enumerate(islice(questions(split, seed), count)):
            picture = pictures / f"{number}.png"
            picture.write_bytes(draw(question.scene))
            place = f"{pictures.name}/{picture.name}"
            rows.write(json.dumps(row(question, f"{split}-{number}", place)) + "\n")


def main(*, output: Output, split: Split, seed: int = 0) -> None:
    """Write the demonstration's questions and their pictures."""
    write(output, split, seed=seed, count=COUNTS[split])
    print(f"{COUNTS[split]} questions: {output}")
