"""How a deep search agent speaks: it reasons, searches or runs Python, and answers in a box.

The token layout of a trajectory (VerlTool, arXiv:2509.01055, table 14: one assistant turn):

    - prompt           both tools with examples, then the question
    - action 0         anything, up to the first </search> or </python>      trained as every action
    - observation 0    <result>what the tool says</result>, raw text in the same turn, said by TOOL
    - action 1, ...
    - last action      ... <answer>\\boxed{...}</answer>, and the end of the turn

The closing tag decides which tool is called: generation ends at the first one, and what follows the
last opening tag of that tool is its argument. So of two calls in one action the first that is
closed is made; one that is opened and never closed is not made, and if another is opened in it and
closed, that one is made. The result of a closing tag without its opening one is an error, and so is
that of an action that the tool cannot read. A tag of no tool stops nothing: it is words.

An answer stands in the action that ends with its turn, the last one counts there. Only the tools'
own closing tags stop an action, so a policy that writes a call after an answer goes on.
"""

from __future__ import annotations

from pathlib import Path

from engine.api import Tagged
from toolwright.text.sections import sections

PROMPTS = sections(Path(__file__).with_name("prompts.txt"))
"""Both tools with examples, and the answer's form, in our own words. The tags are those of the
tools `search` or `web_search`, and `python`."""


class DeepSearch(Tagged):
    """prompt: before the question, "" = no prompt. observation: with {text}."""

    def __init__(
        self, *, prompt: str = PROMPTS["agent"], observation: str = "<result>{text}</result>"
    ) -> None:
        super().__init__(system=prompt, observation=observation)
