"""Tokens of one action over its requests: positions, versions, the stop."""

from __future__ import annotations

import pytest

from engine.sampler.client import ServerUnreachable
from engine.sampler.pool import _Action
from engine.sampler.stops import StopTable
from engine.sampler.wire import Chunk
from engine.types import StopHit
from tests.support.codecs import END, ToyCodec
from toolwright.types import FinishKind, FinishReason, WeightVersion

CODEC = ToyCodec()
V = [WeightVersion(lineage="a", step=n) for n in range(4)]
LENGTH = FinishReason(kind=FinishKind.LENGTH)
ABORT = FinishReason(kind=FinishKind.ABORT)


class Heard:
    """An action and what it told of its stop."""

    def __init__(self) -> None:
        self.stops: list[tuple[list[int], StopHit, int]] = []
        self.action = _Action(StopTable([END], CODEC), CODEC, self._hear)
        self.action.begin()

    def _hear(self, token_ids: object, hit: StopHit, read_ns: int) -> None:
        self.stops.append((list(token_ids), hit, read_ns))  # type: ignore[call-overload]

    def take(
        self,
        *token_ids: int,
        version: str = "a.1",
        finish: FinishReason | None = None,
        spans: tuple[tuple[str, int, int], ...] = (),
        read_ns: int = 1,
    ) -> bool:
        chunk = Chunk(
            token_ids=list(token_ids),
            logprobs=[-i / 8 for i in token_ids],
            weight_version=version,
            finish=finish,
            weight_spans=spans,
        )
        return self.action.on_chunk(chunk, read_ns)


def test_the_server_s_own_account_of_versions_wins() -> None:
    """A chunk that straddles an update names one version for all its tokens."""
    heard = Heard()
    heard.take(1, 2, version="a.1")
    heard.take(3, 4, version="a.2", finish=LENGTH, spans=(("a.1", 0, 3), ("a.2", 3, 4)))
    assert heard.action.generated(LENGTH).versions == (V[1], V[1], V[1], V[2])


def test_a_later_request_s_account_begins_where_it_began() -> None:
    heard = Heard()
    heard.take(1, 2, version="a.1", finish=ABORT, spans=(("a.1", 0, 2),))
    heard.action.begin()
    heard.take(3, 4, 5, version="a.3", finish=LENGTH, spans=(("a.2", 0, 1), ("a.3", 1, 3)))
    generated = heard.action.generated(LENGTH)
    assert generated.versions == (V[1], V[1], V[2], V[3], V[3])
    assert generated.token_ids == (1, 2, 3, 4, 5)
    assert generated.logprobs == tuple(-i / 8 for i in range(1, 6))


def test_the_stop_is_told_at_once_and_what_follows_is_dropped() -> None:
    heard = Heard()
    end = CODEC.token_id(END)
    assert end is not None
    assert heard.take(1)
    assert not heard.take(2, end, 7, 8, read_ns=5)
    ((token_ids, hit, read_ns),) = heard.stops
    assert (token_ids, read_ns) == ([1, 2, end], 5)
    assert (hit.keep, hit.matched_text) == (3, END)
    assert heard.action.finish == FinishReason(
        kind=FinishKind.STOP, matched_token=end, matched_text=END
    )
    assert not heard.action.server_finished
    generated = heard.action.generated(heard.action.finish)
    assert generated.token_ids == (1, 2, end)
    assert len(generated.logprobs) == len(generated.versions) == 3


def test_a_stop_in_the_last_chunk_is_ours_not_the_server_s() -> None:
    heard = Heard()
    end = CODEC.token_id(END)
    assert end is not None
    heard.take(1, end, finish=LENGTH, spans=(("a.1", 0, 2),))
    assert heard.action.finish is not None
    assert heard.action.finish.kind is FinishKind.STOP
    assert heard.action.server_finished


@pytest.mark.parametrize("version", ["default", "", "a"])
def test_tokens_under_foreign_weights_are_not_taken(version: str) -> None:
    heard = Heard()
    heard.take(1)
    with pytest.raises(ServerUnreachable, match="started anew"):
        heard.take(2, version=version)
    assert heard.action.token_ids == [1]
    heard.take(version=version)  # a chunk without tokens says nothing


def test_an_account_of_foreign_weights_is_not_believed() -> None:
    heard = Heard()
    heard.take(1, 2, finish=LENGTH, spans=(("default", 0, 1), ("a.2", 1, 2)))
    assert heard.action.generated(LENGTH).versions == (V[1], V[2])
