"""The final answer in the policy's own words: the readers of `toolwright.reading.answers`, and
`response`, which gives a trajectory's own words.

Give the readers the response alone: a prompt that shows an example answer would be scored for it
(as the released code of VerlTool and Search-R1 does).
"""

from __future__ import annotations

from toolwright.reading.answers import final_answer, hash_number, last_block, last_box
from toolwright.types import Trajectory

__all__ = ["final_answer", "hash_number", "last_block", "last_box", "response"]


def response(trajectory: Trajectory) -> str:
    """What the policy wrote, its turns a line apart: no prompt and no observation. As reward
    functions get it; a record that was read from a file has no texts."""
    return "\n".join(str(text) for text in trajectory.metadata.get("texts", ()))
