"""A served ingress over a scripted engine, and a scripted conversation that uses tools."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.ingress.scripted_engine import ScriptedEngine
from ingress.config import IngressTable
from ingress.http.server import IngressServer
from ingress.serving import served
from toolwright.chat.tokenizer import ChatTokenizer

END = "<|im_end|>"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "looks at a place",
            "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
        },
    }
]


def written_call(name: str, **arguments: str) -> str:
    """A call as the policy writes it."""
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"


def call_text(place: str) -> str:
    """A call of the tool of `TOOLS`."""
    return written_call("look", place=place)


TEN = [
    "I look.\n" + call_text("here") + END,
    call_text("\u00e4 'quoted' \\ place") + "\n" + call_text("two") + END,
    "<think>\nhm\n</think>\n\nStill looking. " + call_text("</tool_call>") + END,
    call_text("four") + END,
    "Plain words, \N{GRINNING FACE}." + END,
    call_text("six") + END,
    '<tool_call>\n{"name": "look", "argumens": {}}\n</tool_call>' + END,
    call_text("eight") + END,
    call_text("nine") + END,
    "Done." + END,
]
"""Completions of a conversation of ten calls: parallel calls, a thought, an ill-formed call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A running ingress. url: base of a client of the trajectory "key"."""

    engine: ScriptedEngine
    tokenizer: ChatTokenizer
    server: IngressServer

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    @property
    def url(self) -> str:
        return f"{self.root}/t/key/v1"


@asynccontextmanager
async def served_agents(
    folder: Path, texts: Sequence[str], *, context: int = 1 << 20, **table: object
) -> AsyncIterator[Served]:
    """An ingress whose policy says the texts, one a call."""
    make = partial(ChatTokenizer, folder)
    tokenizer = make()
    ends = {id_: text for text in tokenizer.turn_ends for id_ in [tokenizer.token_id(text)] if id_}
    said = [tokenizer.encode(text) for text in texts]
    engine = ScriptedEngine(lambda number, choice: said[number], context=context, ends=ends)
    settings = IngressTable.model_validate({"address": "127.0.0.1:0", **table})
    async with engine, served(make, settings, engine=engine.address) as server:
        yield Served(engine=engine, tokenizer=tokenizer, server=server)
