"""Scripts for the scripted sampler that are written as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from bench.scripted import ScriptRequest
from engine.types import Codec

CALL = "<python> 1+1</python>"
ANSWER = "<answer> 2</answer><|im_end|>"
Script = Callable[[ScriptRequest], Iterable[int]]


def by_turn(codec: Codec, replies: Sequence[str], *, mark: str = "</result>") -> Script:
    """Reply number n where the request holds n observations; n counts `mark`.

    Stateless: a request that already holds the beginning of its reply is continued, also by a
    server that never saw it before.
    """

    def script(request: ScriptRequest) -> Sequence[int]:
        text = codec.decode(request.input_ids)
        reply = replies[min(text.count(mark), len(replies) - 1)]
        return codec.encode(reply)[said(codec, text, reply) :]

    return script


def in_turn(codec: Codec, ways: Sequence[Sequence[str]], begins: Callable[[str], int]) -> Script:
    """Rollout number k, as they begin, writes the replies of ways[k], one after the other. begins:
    where in the whole text the question stands, behind which replies are looked for."""
    given = iter(ways)
    mine: dict[str, Sequence[str]] = {}

    def script(request: ScriptRequest) -> Sequence[int]:
        text = codec.decode(request.input_ids)
        replies = mine.get(request.conversation)
        if replies is None:
            replies = mine[request.conversation] = next(given)
        place = begins(text)
        for reply in replies:
            found = text.find(reply, place)
            if found < 0:
                break
            place = found + len(reply)
        return codec.encode(reply)[said(codec, text, reply) :]

    return script


def said(codec: Codec, text: str, reply: str) -> int:
    """How many tokens of `reply` end `text` already."""
    ids = codec.encode(reply)
    for count in range(len(ids), 0, -1):
        if text.endswith(codec.decode(ids[:count])):
            return count
    return 0
