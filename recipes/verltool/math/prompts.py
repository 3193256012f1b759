"""How a program is marked in each style, and what the agent is told of it; in our own words.

A style is one name in the recipe. The protocol takes prompt and frame from it, and the `python`
tool its format, which brings the stop string: `python.format=${task.protocol_options.style}`.
"""

from __future__ import annotations

from pathlib import Path

from toolwright.text.sections import sections

PROMPTS = sections(Path(__file__).with_name("prompts.txt"))
"""By style. A closing fence begins like an opening one, so generation stops at the block of the
output."""
OBSERVATIONS = {"fenced": "\n{text}\n```\n", "tags": "\n<result>\n{text}\n</result>\n"}
"""What stands around a program's output, by style."""
