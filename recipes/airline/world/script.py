"""The script of an agent in its prompt, and the sampler that follows it.

    bench scripted-sampler --script world/script.py:reply --port 30000

The customer's first message ends with a line that holds the agent's messages as JSON. The sampler
reads the line from the prompt's ids. The number of the turn selects the message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from toolwright.model.tiny_policy import END_OF_TURN_ID

from .policy import tokenizer

_SCRIPT = re.compile(r"^\[script: (\[.*\])\]", re.MULTILINE)


def with_script(row: Mapping[str, Any], said: Sequence[str]) -> Mapping[str, Any]:
    """The row with the agent's messages in its last message."""
    *before, last = row["messages"]
    line = f"[script: {json.dumps(said, ensure_ascii=False)}]"
    return {**row, "messages": [*before, {**last, "content": f"{last['content']}\n{line}"}]}


def reply(request: Any) -> list[int]:
    """Ids of one message, with the end of the turn. request: has `turn` and `input_ids`.

    Raises ValueError for a prompt without a script.
    """
    encoder = tokenizer()
    prompt = encoder.decode(list(request.input_ids), skip_special_tokens=False)
    found = _SCRIPT.search(prompt)
    if found is None:
        raise ValueError("the prompt has no script: ask tasks of solving.jsonl or damaging.jsonl")
    said = json.loads(found[1])
    return [*encoder.encode(said[min(request.turn, len(said) - 1)]).ids, END_OF_TURN_ID]
