"""Countries of the world, for a pretrained model: questions of one search and of two, and passages.

The facts are real (GeoNames). A model may know some of them; the reward is for looking them up. One
country in five is held out.

    python -m toolwright.script countries/questions.py --output corpus.jsonl

It knows nothing of tokens, tools or how the policy is trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tasks.record import Record
from tasks.worlds import atlas
from tasks.worlds.questions import EasyAndHard, passages_program
from toolwright.types import Task

SPLIT = 1
"""The seed that says which countries are held out."""


def _every(split: str, hops: int) -> Iterator[Record]:
    return (one for one in atlas.questions(split, SPLIT) if one.extra["hops"] == hops)


def _task(record: Record, id: str, source: str) -> Task:
    return replace(record.as_task(), id=id, data_source=source)


_STREAMS = EasyAndHard(_every, _task)
training, easy, hard = _STREAMS.training, _STREAMS.easy, _STREAMS.hard
main = passages_program(lambda: atlas.passages(SPLIT))
