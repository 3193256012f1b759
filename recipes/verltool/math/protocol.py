"""How the agent of the mathematics task speaks: words, programs, and an answer in a box.

The token layout of a trajectory (VerlTool, arXiv:2509.01055, section 3.3 and table 13), all of it
in one turn of the assistant:

    prompt           what to do, then the problem
    action 0         reasoning, ```python ... ```, and the ```output at which generation stops
    observation 0    what the program printed, and the fence that closes its block; by TOOL
    action 1, ...
    last action      reasoning with \\boxed{...}, and the end of the turn

The tool reads the action and runs its blocks. An action that ends at the tool's stop without a
program is told so by the tool, and the turn counts.

Invariants
- Pure, and it never raises for anything that a policy writes; linear in the length of that.
- What the policy sampled is never encoded again: output is appended to it as ids of its own.
"""

from __future__ import annotations

from engine.api import Answer, Codec, Decision, Tagged, View, nothing_done

from .prompts import style_of
from .rewards import boxed


class Programs(Tagged):
    """Options: `style` = "fenced" or "tags", as the tool's `python.format`; `prompt`, in place of
    the style's ("" = the task's messages alone); `observation` with {text}, likewise."""

    def __init__(
        self, *, style: str = "fenced", prompt: str | None = None, observation: str = ""
    ) -> None:
        """ValueError for a style that is none."""
        own = style_of(style)
        super().__init__(
            observation=observation or own.observation,
            system=own.prompt if prompt is None else prompt,
        )

    def decide(self, text: str, stop: str, view: View, codec: Codec) -> Decision:
        if stop != codec.end_of_turn:
            return super().decide(text, stop, view, codec)
        body = text.removesuffix(stop)
        answer = boxed((*view.actions, body))
        return nothing_done(body) if answer is None else Answer(text=answer)
