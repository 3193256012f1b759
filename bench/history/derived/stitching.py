"""How a record is stitched of what requests brought. Pure; offsets are in tokens."""

from __future__ import annotations

from dataclasses import dataclass

from bench.history.derived.contents import WIDTH, common_tokens
from bench.history.events import Member
from toolwright.types import Author, WeightVersion

MODEL = Author.MODEL.name


@dataclass(frozen=True, slots=True)
class Request:
    index: int
    life: int
    worker: str
    prompt: bytes
    sent: bytes
    version: WeightVersion
    behind: bool
    """A later version had been published before the request began."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens [start, end) of a record that one request brought."""

    start: int
    end: int
    request: Request


def model_spans(member: Member) -> list[tuple[int, int]]:
    """Maximal runs of the policy's tokens within a turn: (start, end)."""
    spans: list[tuple[int, int]] = []
    offset, turn = 0, -1
    for segment in member.segments:
        end = offset + len(segment.token_ids)
        if segment.author == MODEL and end > offset:
            if spans and spans[-1][1] == offset and turn == segment.turn:
                spans[-1] = spans[-1][0], end
            else:
                spans.append((offset, end))
            turn = segment.turn
        offset = end
    return spans


def pieces_of(
    spans: list[tuple[int, int]], content: bytes, requests: list[Request]
) -> list[list[Piece]]:
    """For each span what requests brought of it, by start."""
    found: list[list[Piece]] = [[] for _ in spans]
    number = 0
    for request in sorted(requests, key=lambda one: len(one.prompt)):
        start = len(request.prompt) // WIDTH
        while number < len(spans) and spans[number][1] <= start:
            number += 1
        if number == len(spans):
            break
        if start < spans[number][0] or not content.startswith(request.prompt):
            continue
        recorded = content[start * WIDTH : spans[number][1] * WIDTH]
        brought = common_tokens(request.sent, recorded)
        found[number].append(Piece(start, start + brought, request))
    return found


def continues(content: bytes, prompt: bytes, requests: list[Request]) -> bool:
    """The prompt is all of `content` and a part of an action that samplers sent after it."""
    if not prompt.startswith(content):
        return False
    pieces = [
        Piece(
            len(one.prompt) // WIDTH,
            len(one.prompt) // WIDTH + common_tokens(one.sent, prompt[len(one.prompt) :]),
            one,
        )
        for one in sorted(requests, key=lambda one: len(one.prompt))
        if len(content) <= len(one.prompt) < len(prompt) and prompt.startswith(one.prompt)
    ]
    return reach(len(content) // WIDTH, pieces) * WIDTH >= len(prompt)


def reach(start: int, pieces: list[Piece]) -> int:
    """The first token from `start` on that no piece holds. Any prefix of a piece may be used."""
    for piece in pieces:
        if piece.start <= start:
            start = max(start, piece.end)
    return start
