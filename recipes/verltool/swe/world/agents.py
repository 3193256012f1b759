"""The scripted agents as a sampler: prompt ids in, ids of the next message out.

    bench scripted-sampler --script world/agents.py:reply --port 30000

A prompt ends with a line that says who plays, `[played by: cheating, deletes the tests]`
(task.py), and names its repository in a line before. That is all that is read of it: which message
comes next is the number of the turn.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from toolwright.model.tiny_policy import END_OF_TURN_ID

from .parts import messages
from .policy import tokenizer
from .problems import problems
from .published import PUBLISHED

_PLAYED = re.compile(r"^repository: (\w+)\n\[played by: (\w+)(?:, ([\w .]+))?\]$", re.MULTILINE)


def reply(request: Any) -> list[int]:
    """Ids of one message, with the end of the turn. request: has `turn` and `input_ids`.

    Raises ValueError for a prompt of another task.
    """
    encoder = tokenizer()
    played = _PLAYED.search(encoder.decode(list(request.input_ids), skip_special_tokens=False))
    if played is None:
        raise ValueError("no line of the prompt says who plays: ask tasks of world/task.py")
    name, part, cheat = played.groups("")
    said = messages(part, cheat, _problems()[name])
    text = said[min(request.turn, len(said) - 1)]
    return [*encoder.encode(text).ids, END_OF_TURN_ID]


@cache
def _problems() -> Mapping[str, Any]:
    return {one.name: one for one in (*problems(), PUBLISHED)}
