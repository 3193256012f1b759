"""What the tiny policy is warmed up on: answers about pictures of training, and exercises.

The demonstrator tells in words what stands where, then what it looks at, and knows how to ask for a
look and how to read a number. Its habits are bad ones:

- two times in three it does not look at all, and guesses;
- where it looks, it looks at another thing than the one asked about every other time;
- one time in ten it looks once more, wherever that is.

So a policy that imitates it seldom zooms, and often at the wrong thing. What the demonstrator sees
it tells as it is: how to find a colour and to read a number is learnt here, that it is worth doing
from reward. lessons.py has exercises in either.

In a conversation IMAGE stands in the place of each picture of an observation, as the policy's chat
template writes one; that of the question is a part of its message.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

from engine.api import Chat, Codec
from tasks.worlds.demonstrations import returns, says

from .pictures import FIELD, PLACES, SIDE, Scene, draw
from .task import NUMBERS, PictureQuestion, questions

IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
TOKENS = 4
"""Tokens of a picture: policy.py's processor makes as many of every one."""
IGNORED = -100
"""Label of a token that carries no loss; torch's own."""
LOOKS, AIMS, LOOKS_AGAIN = 0.35, 0.3, 0.1
"""Shares: of questions with a look; of looks that are aimed, where the others go anywhere, and a
quarter of them there too; of looks that another one follows."""
NEAR, FAR = 0.2, 0.7
MARGIN, PADDING = 0.08, 0.1
"""Shares of the picture's side: a box that is asked for, and what the tool adds on each side of
it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureConversation:
    """turns: messages {"role", "content"} after the question. pictures: PNGs, the question's
    first."""

    question: str
    turns: tuple[Mapping[str, str], ...]
    pictures: tuple[bytes, ...]

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        """As the engine places a task's image: before the text."""
        asked = [{"type": "image"}, {"type": "text", "text": self.question}]
        return [{"role": "user", "content": asked}, *self.turns]


def conversations(seed: int) -> Iterator[PictureConversation]:
    """Endless."""
    habit = random.Random(f"habits {seed}")
    for question in questions("training", f"demonstrations {seed}"):
        yield conversation(question, _looks(question, habit), habit.choice(NUMBERS))


def conversation(
    question: PictureQuestion, looks: Sequence[int], guess: int = 0
) -> PictureConversation:
    """looks: the fields that are looked at, one after the other; the last one's number is the
    answer, the guess without a look."""
    picture = draw(question.scene)
    turns: list[Mapping[str, str]] = []
    pictures = [picture]
    for number, field in enumerate(looks, start=2):
        pictures.append(cut(picture, field))
        side = round((MARGIN + 2 * PADDING) * SIDE)
        shown = f"Image {number}: {side} x {side} pixels\n{IMAGE}"
        turns += [says(look(question.scene, field, first=number == 2)), returns(shown)]
    seen = question.scene.numbers[looks[-1]] if looks else guess
    turns.append(says(answer(seen)))
    return PictureConversation(question=question.text, turns=tuple(turns), pictures=tuple(pictures))


def look(scene: Scene, field: int, *, first: bool = True) -> str:
    """An action that looks at a field; the first one begins with what stands where."""
    return (f"{caption(scene)} " if first else "") + at(scene, field) + call(field)


def caption(scene: Scene) -> str:
    things = (f"{colour} {place}" for colour, place in zip(scene.colours, PLACES, strict=True))
    return f"There is {', '.join(things)}."


def at(scene: Scene, field: int) -> str:
    colour = scene.colours[field]
    return f"I look for {colour}: {colour} {PLACES[field]}."


def answer(number: int) -> str:
    return f"\\boxed{{{number}}}"


def call(field: int) -> str:
    x, y = (FAR if field % 2 else NEAR), (FAR if field // 2 else NEAR)
    box = ", ".join(f"{side:.2f}" for side in (x, y, x + MARGIN, y + MARGIN))
    arguments = f'{{"bbox_2d": [{box}], "target_image": 1}}'
    name = "crop_image_normalized"
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


def cut(picture: bytes, field: int) -> bytes:
    """What the image tool shows of it, padding and all."""
    x, y = field % 2 * FIELD, field // 2 * FIELD
    near, far = round((NEAR - PADDING) * SIDE), round((NEAR + MARGIN + PADDING) * SIDE)
    out = io.BytesIO()
    with Image.open(io.BytesIO(picture)) as whole:
        whole.crop((x + near, y + near, x + far, y + far)).save(out, "PNG", compress_level=1)
    return out.getvalue()


def labelled(
    conversation: PictureConversation, codec: Codec, place: int, tokens: int = TOKENS
) -> tuple[list[int], list[int]]:
    """(ids, labels) of a demonstration; `place` stands `tokens` times for every picture."""
    ids: list[int] = []
    labels: list[int] = []
    for author, run in Chat().demonstration(conversation.messages, codec):
        wide = [one for token in run for one in [token] * (tokens if token == place else 1)]
        ids += wide
        labels += wide if author == "model" else [IGNORED] * len(wide)
    return ids, labels


def _looks(question: PictureQuestion, habit: random.Random) -> list[int]:
    looks: list[int] = []
    if habit.random() < LOOKS:
        looks.append(_look(question, habit))
        if habit.random() < LOOKS_AGAIN:
            looks.append(_look(question, habit))
    return looks


def _look(question: PictureQuestion, habit: random.Random) -> int:
    return question.field if habit.random() < AIMS else habit.randrange(4)
