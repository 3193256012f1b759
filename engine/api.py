"""The public names of the engine: what recipes, and programs beside it, may import.

Everything else in `engine` may move between versions. A protocol is written with the types of a
turn, a reward with `Score`; both are named in the recipe as `./file.py:Name`. A program beside a
running engine uses `RolloutClient`.
"""

from __future__ import annotations

from engine.client import RolloutClient, Submitted, WatchedEvent
from engine.core.protocols import Protocol
from engine.core.protocols.actions import nothing_done, read_call, read_json_call
from engine.core.protocols.chat import Chat
from engine.core.protocols.tagged import Tagged
from engine.core.rewards import Score
from engine.core.rewards.score import rewarded
from engine.core.text.codec import HuggingFaceCodec
from engine.core.text.cut import stop_cut
from engine.core.text.messages import calls_of, content_of, opening, split_opening
from engine.errors import RequestFailed
from engine.types import (
    Answer,
    Call,
    Calls,
    Codec,
    Decision,
    End,
    Rewrite,
    Say,
    ToolSpec,
    View,
)
from toolwright.chat.foreign import OwnText
from toolwright.recipe.options import Options, needs

__all__ = [
    "Answer",
    "Call",
    "Calls",
    "Chat",
    "Codec",
    "Decision",
    "End",
    "HuggingFaceCodec",
    "Options",
    "OwnText",
    "Protocol",
    "RequestFailed",
    "Rewrite",
    "RolloutClient",
    "Say",
    "Score",
    "Submitted",
    "Tagged",
    "ToolSpec",
    "View",
    "WatchedEvent",
    "calls_of",
    "content_of",
    "needs",
    "nothing_done",
    "opening",
    "read_call",
    "read_json_call",
    "rewarded",
    "split_opening",
    "stop_cut",
]
