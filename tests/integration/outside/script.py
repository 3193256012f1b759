"""What the scripted sampler writes for the calculator: the right call, then its result.

    bench scripted-sampler --script script.py:reply --port 30000

OUTSIDE_POLICY names the folder of the policy. A prompt that is not, character for character, what
both loops have to send is refused.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Any

from toolwright.chat.tokenizer import ChatTokenizer
from toolwright.imports import load_file

RECIPE = Path(__file__).resolve().parents[3] / "recipes/outside"
FIRST = re.compile(
    r"<\|im_start\|>system\ncalculate: Works out one operation\.\n<\|im_end\|>\n"
    r"<\|im_start\|>user\n([^<]*)<\|im_end\|>\n<\|im_start\|>assistant\n"
)
RESULT = re.compile(r"\n<\|im_start\|>tool\n(\d+)<\|im_end\|>\n<\|im_start\|>assistant\n")


@cache
def tokenizer() -> ChatTokenizer:
    return ChatTokenizer(Path(os.environ["OUTSIDE_POLICY"]))


@cache
def forms() -> dict[re.Pattern[str], str]:
    """Each wording as a pattern, and the operator that it asks for."""
    wordings = load_file(RECIPE / "task.py").WORDINGS
    holes = {"a": r"(?P<a>\d+)", "b": r"(?P<b>\d+)", "things": "[a-z]+"}
    return {
        re.compile(text.replace("?", r"\?").replace(".", r"\.").format(**holes)): sign
        for sign, texts in wordings.items()
        for text in texts
    }


def reply(request: Any) -> list[int]:
    """Ids of one message. Raises ValueError for another prompt."""
    prompt = tokenizer().decode(list(request.input_ids))
    first = FIRST.match(prompt)
    if first is None:
        raise ValueError(f"not the prompt of a question: {prompt!r}")
    written = load_file(RECIPE / "demonstrations.py").written_call(_expression(first[1]))
    text = written
    if rest := prompt[first.end() :]:
        result = RESULT.fullmatch(rest.removeprefix(f"{written}<|im_end|>"))
        if result is None:
            raise ValueError(f"not the result of the call: {rest!r}")
        text = result[1]
    return tokenizer().encode(f"{text}<|im_end|>")


def _expression(question: str) -> str:
    for form, sign in forms().items():
        if (found := form.fullmatch(question)) is not None:
            return f"{found['a']}{sign}{found['b']}"
    raise ValueError(f"no wording asks {question!r}")
