"""The scripted sampler of `bench ingress`, in a process of its own.

    python -m bench.ingress.sampler SETTINGS.json STAMPS.json

A completion has as many tokens as its request allows. At SIGTERM the time of each is written, as
rows of [attempt, ns when the request was read, ns when its end was written].
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from bench.scripted import ScriptedSampler, ScriptRequest, Timing
from bench.scripted.types import GenerateRequest
from toolwright.process import loop

Stamp = tuple[str, int, int]
CHUNK = 8
"""Tokens of an event of a stream."""


class ReplyTimes:
    """Times of each completion."""

    def __init__(self) -> None:
        self.rows: list[Stamp] = []

    def asked(self, request: GenerateRequest) -> None:
        pass

    def replied(self, request: GenerateRequest, read_ns: int, written_ns: int) -> None:
        self.rows.append((request.conversation, read_ns, written_ns))


async def serve(settings: dict[str, Any]) -> list[Stamp]:
    """Serves until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    stamps, ids = ReplyTimes(), settings["word_ids"]

    def script(request: ScriptRequest) -> Iterator[int]:
        dice = Random(f"{request.conversation} {len(request.input_ids)}")
        while True:
            yield dice.choice(ids)

    sampler = ScriptedSampler(
        script=script,
        timing=Timing(
            first_token_delay=0.02,
            tokens_per_second=settings["tokens_per_s"],
            tokens_per_chunk=CHUNK,
        ),
        eos=(settings["end_id"],),
        context_length=settings["context"],
        vocab_size=settings["vocab_size"],
        record=0,
        watch=stamps,
    )
    async with sampler:
        print(f"serving words on {sampler.url.removeprefix('http://')}", flush=True)
        await stop.wait()
    return stamps.rows


def main() -> None:
    settings, stamps = map(Path, sys.argv[1:])
    rows = loop.run(serve(json.loads(settings.read_text(encoding="utf-8"))))
    stamps.write_text(json.dumps(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
