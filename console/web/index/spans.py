"""Where the time of a recorded trajectory went: spans, from the stamps of its actions and calls.
Pure.

Invariants
- Spans are as they were recorded: of calls that ran at once, each has its own, and they overlap.
- No span begins before the trajectory, and none lasts longer than LONGEST_S: a stamp of another
  boot's clock, or of a stranger, costs itself.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from console.record.lines import number
from console.web.index.segments import own_segments
from console.web.index.types import KINDS, Kind, Span, Times
from toolwright.common.v1 import trajectory_pb2 as pb

LONGEST_S = 30 * 24 * 3600.0
LATEST_S = 1e11
"""Unix seconds: what is later is no time of a run."""
MOST_SPANS = 2_000
NS = 1e9


def times_of(message: pb.Trajectory) -> Times | None:
    """None where no action has stamps: of a demonstration, or of an older engine."""
    clock = message.timings.clock_s
    stamps = message.action_timings
    if not 0 < clock < LATEST_S or not stamps:
        return None
    opened = _seconds(message.timings.open_s)
    zero = stamps[0].asked_ns / NS - opened
    spans = tuple(islice(_sound(_spans(message, opened), zero), MOST_SPANS))
    last = max((span.end for span in spans), default=0.0)
    return Times(
        began=clock + zero, length=max(last, _seconds(message.timings.wall_s)), spans=spans
    )


def packed(spans: Iterable[Span]) -> str:
    """As the index keeps them: [kind, first millisecond, last one, tokens] each."""
    rows = [
        [KINDS.index(span.kind), round(span.start * 1e3, 1), round(span.end * 1e3, 1), span.tokens]
        for span in spans
    ]
    return json.dumps(rows, separators=(",", ":"))


def unpacked(text: str) -> tuple[Span, ...]:
    """What `packed` made."""
    return tuple(
        Span(kind=KINDS[kind], start=start / 1e3, end=end / 1e3, tokens=tokens)
        for kind, start, end, tokens in json.loads(text)
    )


def _spans(message: pb.Trajectory, opened: float) -> Iterator[tuple[Kind, float, float, int]]:
    """In seconds of the engine's clock; of `open` from the trajectory's beginning on."""
    first = message.action_timings[0].asked_ns / NS
    yield "open", first - opened, first, 0
    wrote: Counter[int] = Counter()
    for segment in own_segments(message):
        if segment.author == pb.AUTHOR_MODEL:
            wrote[segment.turn] += segment.token_count
    for action in message.action_timings:
        asked, acted = action.asked_ns / NS, action.acted_ns / NS
        begun = action.first_ns / NS
        if asked < begun <= acted:
            yield "wait", asked, begun, 0
        else:
            begun = asked
        yield "generate", begun, acted, wrote.pop(action.turn, 0)
    for call in message.calls:
        stamps = call.timings
        if stamps.dispatched_ns and stamps.result_ns:
            sent, answered = stamps.dispatched_ns / NS, stamps.result_ns / NS
            queued = min(_seconds(stamps.queued_s), max(answered - sent, 0.0))
            yield "queue", sent, sent + queued, 0
            yield "tool", sent + queued, answered, 0


def _sound(spans: Iterable[tuple[Kind, float, float, int]], zero: float) -> Iterator[Span]:
    for kind, start, end, tokens in spans:
        if zero - 1e-6 <= start < end <= zero + LONGEST_S:
            yield Span(kind=kind, start=start - zero, end=end - zero, tokens=tokens)


def _seconds(value: Any) -> float:
    found = number(value)
    return min(max(found, 0.0), LONGEST_S) if found is not None and math.isfinite(found) else 0.0
