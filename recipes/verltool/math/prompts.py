"""How a program is marked in each style, and what the agent is told of it; in our own words.

A style is one name in the recipe. The protocol takes prompt and frame from it, and the `python`
tool its format, which brings the stop string: `python.format=${task.protocol_options.style}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_TASK = """\
Solve the problem. Reason in words, and leave to Python whatever is long to compute or easy to get \
wrong. """
_ANSWER = """
You go on behind it, and may run further programs. End with the answer in a box, \\boxed{}: a \
number or an expression, without words beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """observation: what stands around a program's output, with {text}."""

    prompt: str
    observation: str


STYLES: Mapping[str, Style] = {
    # A closing fence begins like an opening one, so generation stops at the block of the output.
    "fenced": Style(
        prompt=f"""\
{_TASK}A program is a block of code, and behind it begins a block for its output:
```python
print(2**40)
```
```output
What the program prints is then put there for you.{_ANSWER}""",
        observation="\n{text}\n```\n",
    ),
    "tags": Style(
        prompt=f"""\
{_TASK}A program stands between tags:
<python> print(2**40)</python>
What it prints is then put between <result> and </result> for you.{_ANSWER}""",
        observation="\n<result>\n{text}\n</result>\n",
    ),
}


def style_of(name: str) -> Style:
    """ValueError for a name that is none."""
    if name not in STYLES:
        raise ValueError(f"style = {name!r}: write {' or '.join(map(repr, STYLES))}")
    return STYLES[name]
