"""What the policy is told: how to look closer, and the functions for it as its template shows them.

Words of our own. Names and arguments are those of the image tool (docs/tools/shipped/image.md),
which took them from Pixel-Reasoner and VerlTool.
"""

from __future__ import annotations

import json
from pathlib import Path

from toolwright.text.sections import sections

PROMPTS = sections(Path(__file__).with_name("prompts.txt"))
_FUNCTIONS = json.loads(Path(__file__).with_name("functions.json").read_text(encoding="utf-8"))
CROPS, FRAMES = tuple(_FUNCTIONS["crops"]), tuple(_FUNCTIONS["frames"])
