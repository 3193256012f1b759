"""How the agent of the mathematics task speaks: words, programs, and an answer in a box.

The token layout of a trajectory (VerlTool, arXiv:2509.01055, section 3.3 and table 13), all of it
in one turn of the assistant:

    - prompt           what to do, then the problem
    - action 0         reasoning, ```python ... ```, and the ```output at which generation stops
    - observation 0    what the program printed, and the fence that closes its block; by TOOL
    - action 1, ...
    - last action      reasoning with \\boxed{...}, and the end of the turn

The tool reads the action and runs its blocks. The tool refuses an action that ends at
its stop without a program, and the turn counts.

Invariants
- Pure, and it never raises for anything that a policy writes; linear in the length of that.
- What the policy sampled is never encoded again: output is appended to it as ids of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from engine.api import Answer, Codec, Decision, Options, Tagged, View, nothing_done
from toolwright.text.sections import sections

from .rewards import boxed

PROMPTS = sections(Path(__file__).with_name("prompts.txt"))
"""By style. A closing fence begins like an opening one, so generation stops at the block of the
output."""
OBSERVATIONS = {"fenced": "\n{text}\n```\n", "tags": "\n<result>\n{text}\n</result>\n"}
"""What stands around a program's output, by style."""


class ProgramOptions(Options):
    """Options of the protocol."""

    style: Literal["fenced", "tags"] = "fenced"
    """As the tool's `python.format`."""
    prompt: str | None = None
    """In place of the style's; "" = the task's messages alone."""
    observation: str = ""
    """With {text}, in place of the style's."""


class Programs(Tagged):
    """An agent that writes programs."""

    def __init__(self, **options: Any) -> None:
        given = ProgramOptions(**options)
        super().__init__(
            observation=given.observation or OBSERVATIONS[given.style],
            system=PROMPTS[given.style] if given.prompt is None else given.prompt,
        )

    def decide(self, text: str, stop: str, view: View, codec: Codec) -> Decision:
        if stop != codec.end_of_turn:
            return super().decide(text, stop, view, codec)
        body = text.removesuffix(stop)
        answer = boxed((*view.actions, body))
        return nothing_done(body) if answer is None else Answer(text=answer)
