"""The world of the demonstration: questions about a small encyclopedia that no search can find.

Easy questions take one fact, hard ones two: what the first call finds is what the second call has
to ask about. There are no tools: a model makes them from each question, and plays them (player.py).

It knows nothing of tokens, tools or how the policy is trained. Tools see a task's metadata: the
question is there, for ToolMaker, and no answer.
"""

from __future__ import annotations

from tasks.worlds.encyclopedia import Question, questions
from tasks.worlds.questions import ENCYCLOPEDIA, SHAPE, EasyAndHard, question_task
from toolwright.types import Task


def _task(one: Question, id: str, source: str) -> Task:
    told = {"question": one.text, "hops": one.hops}
    return question_task(id, one.text, *one.answers, source=source, **told)


_STREAMS = EasyAndHard(lambda split, hops: questions(split, ENCYCLOPEDIA, SHAPE, (hops,)), _task)
training, heldout = _STREAMS.training, _STREAMS.heldout
easy, hard = _STREAMS.easy, _STREAMS.hard
