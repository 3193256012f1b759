"""What a scripted sampler sent, written by itself before the bytes leave.

`bench scripted-sampler --log FILE` writes the lines, `sampled` makes events of them. The log holds
every id that a client can have received, also where the process was killed amid a stream.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import msgspec

from bench.history.events import Loaded, Sampled
from bench.history.stored import Appender, whole_lines
from toolwright.types import WeightVersion, ids


class _Line(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    at: float


class _Began(_Line, frozen=True, kw_only=True):
    """A request, with its prompt."""

    rid: str
    attempt: str
    prompt: tuple[int, ...]


class _Sent(_Line, frozen=True, kw_only=True):
    """Ids that are about to leave, all of one version."""

    rid: str
    version: str
    ids: tuple[int, ...]


class _Over(_Line, frozen=True, kw_only=True):
    """The last byte of the reply was handed on."""

    rid: str


class _Weights(_Line, frozen=True, kw_only=True):
    version: str


_DECODER = msgspec.json.Decoder(_Began | _Sent | _Over | _Weights)


class SamplerLog:
    """Writes the lines. A `bench.scripted.server.ReplyLog`."""

    def __init__(self, file: Path) -> None:
        self._lines = Appender(file)

    def began(self, rid: str, conversation: str, prompt: Sequence[int]) -> None:
        self._lines.write(
            _Began(at=time.monotonic(), rid=rid, attempt=conversation, prompt=tuple(prompt))
        )

    def sends(self, rid: str, version: str, token_ids: Sequence[int]) -> None:
        self._lines.write(
            _Sent(at=time.monotonic(), rid=rid, version=version, ids=tuple(token_ids))
        )

    def over(self, rid: str) -> None:
        self._lines.write(_Over(at=time.monotonic(), rid=rid))

    def loaded(self, version: str) -> None:
        self._lines.write(_Weights(at=time.monotonic(), version=version))

    def close(self) -> None:
        self._lines.close()


def sampled(file: Path, server: str) -> list[Sampled | Loaded]:
    """Events of the log at `file`, of the server named `server`, in the order of their time.

    A reply whose tokens have several versions becomes one event a version; the prompt of each holds
    the ids before it. A reply that broke is not `exact`: its last ids may not have left. Tokens
    under a version that is not a `WeightVersion`, such as "default", are left out: an engine that
    takes them takes tokens that no server sent.
    """
    events: list[Sampled | Loaded] = []
    requests: dict[str, _Began] = {}
    replies: dict[str, list[_Sent]] = {}

    def ended(rid: str, *, exact: bool) -> None:
        first, sent = requests.pop(rid), replies.pop(rid)
        before, began = list(first.prompt), first.at
        runs = [(version, list(run)) for version, run in groupby(sent, lambda one: one.version)]
        for number, (version, run) in enumerate(runs):
            token_ids = [token for one in run for token in one.ids]
            last = number == len(runs) - 1
            if (known := _version(version)) is not None:
                events.append(
                    Sampled(
                        at=run[-1].at,
                        attempt=first.attempt,
                        server=server,
                        prompt=ids(before),
                        token_ids=ids(token_ids),
                        version=known,
                        exact=exact or not last,
                        began=began,
                    )
                )
            before += token_ids
            began = run[-1].at

    for line in map(_DECODER.decode, whole_lines(file)):
        match line:
            case _Began(rid=rid):
                requests[rid], replies[rid] = line, []
            case _Sent(rid=rid):
                replies[rid].append(line)
            case _Over(rid=rid):
                ended(rid, exact=True)
            case _Weights(at=at, version=version):
                if (known := _version(version)) is not None:
                    events.append(Loaded(at=at, server=server, version=known))
    for rid in tuple(requests):
        ended(rid, exact=False)
    return sorted(events, key=lambda event: event.at)


def _version(text: str) -> WeightVersion | None:
    try:
        return WeightVersion.parse(text)
    except ValueError:
        return None
