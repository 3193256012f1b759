"""The world of the demonstration: a small encyclopedia, with easy and hard questions about it.

Easy questions take one search, hard ones two: what the first finds is what the second has to ask
about. Names have two pieces, so that the search finds namesakes too, and a held-out name is new as
a whole and not in its pieces.

    python -m toolwright.script world/task.py --output corpus.jsonl     # what the tool searches

It knows nothing of tokens, tools or how the policy is trained.
"""

from __future__ import annotations

from tasks.worlds.encyclopedia import Question, passages, questions
from tasks.worlds.questions import ENCYCLOPEDIA, SHAPE, EasyAndHard, passages_program, question_task
from toolwright.types import Task


def _task(one: Question, id: str, source: str) -> Task:
    told = {"hops": one.hops, "relation": one.path[-1]}
    return question_task(id, one.text, *one.answers, source=source, **told)


_STREAMS = EasyAndHard(lambda split, hops: questions(split, ENCYCLOPEDIA, SHAPE, (hops,)), _task)
training, easy, hard = _STREAMS.training, _STREAMS.easy, _STREAMS.hard
main = passages_program(lambda: passages(ENCYCLOPEDIA, SHAPE))
