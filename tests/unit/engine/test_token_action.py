"""Tokens of one action over its requests: positions, versions, marks, progress, the stop."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from engine.core.sampler.policy_sampler import (
    FIRST_PROGRESS_NS,
    LONGEST_PROGRESS_NS,
    GenerateRequest,
)
from engine.core.sampler.stops import StopTable
from engine.core.sampler.token_action import TokenAction
from engine.core.sampler.wire.client import ServerUnreachable
from engine.core.sampler.wire.events import Chunk
from engine.types import Generated, StopHit
from tests.support.codecs import END, ToyCodec
from toolwright.types import FinishKind, FinishReason, SamplingParams, WeightVersion

CODEC = ToyCodec("</call>", "l>", "</cal")
V = [WeightVersion(lineage="a", step=n) for n in range(4)]
KNOWN = {str(version): version for version in V}
LENGTH = FinishReason(kind=FinishKind.LENGTH)
ABORT = FinishReason(kind=FinishKind.ABORT)


class Heard:
    """An action and what it told: (what, ...) in order."""

    def __init__(self, received: Generated | None = None) -> None:
        self.told: list[tuple[str, Any]] = []
        request = GenerateRequest(
            key="t",
            token_ids=array("i"),
            sampling=SamplingParams(),
            stops=StopTable([END], CODEC, marks=["</call>"]),
            max_new_tokens=100,
            on_action=lambda generated: self.told.append(("action", generated)),
            on_mark=self._mark,
            on_progress=lambda generated: self.told.append(("progress", generated)),
            received=received,
        )
        self.action = TokenAction(request, codec=CODEC, known=KNOWN)
        self.action.begin(1)

    def _mark(self, token_ids: array[int], hit: StopHit, read_ns: int) -> None:
        self.told.append(("mark", (list(token_ids), hit, read_ns)))

    def take(
        self,
        *token_ids: int,
        version: str = "a.1",
        finish: FinishReason | None = None,
        spans: tuple[tuple[str, int, int], ...] = (),
        read_ns: int = 1,
    ) -> bool:
        chunk = Chunk(
            token_ids=array("i", token_ids),
            logprobs=array("f", [-i / 8 for i in token_ids]),
            weight_version=version,
            finish=finish,
            weight_spans=spans,
        )
        return self.action.on_chunk(chunk, read_ns)

    def said(self, text: str, *, read_ns: int = 1) -> bool:
        return self.take(*CODEC.encode(text), read_ns=read_ns)


def test_the_server_s_own_account_of_versions_wins() -> None:
    """A chunk that straddles an update names one version for all its tokens."""
    heard = Heard()
    heard.take(1, 2, version="a.1")
    heard.take(3, 4, version="a.2", finish=LENGTH, spans=(("a.1", 0, 3), ("a.2", 3, 4)))
    assert heard.action.whole(LENGTH).versions == ((V[1], 3), (V[2], 1))


def test_a_later_request_s_account_begins_where_it_began() -> None:
    heard = Heard()
    heard.take(1, 2, version="a.1", finish=ABORT, spans=(("a.1", 0, 2),))
    heard.action.begin(1)
    heard.take(3, 4, 5, version="a.3", finish=LENGTH, spans=(("a.2", 0, 1), ("a.3", 1, 3)))
    generated = heard.action.whole(LENGTH)
    assert generated.versions == ((V[1], 2), (V[2], 1), (V[3], 2))
    assert generated.token_ids == array("i", [1, 2, 3, 4, 5])
    assert generated.logprobs == array("f", [-i / 8 for i in range(1, 6)])


def test_the_stop_is_told_at_once_with_all_of_the_action() -> None:
    heard = Heard()
    end = CODEC.token_id(END)
    assert end is not None
    assert heard.take(1)
    assert not heard.take(2, end, 7, 8, read_ns=5)
    stop = FinishReason(kind=FinishKind.STOP, matched_token=end, matched_text=END)
    ((what, generated),) = heard.told
    assert what == "action"
    assert generated == Generated(
        token_ids=array("i", [1, 2, end]),
        logprobs=array("f", [-1 / 8, -2 / 8, -end / 8]),
        versions=((V[1], 3),),
        finish=stop,
        stop=END,
        cut=True,
        read_ns=5,
        first_ns=1,
    )
    assert not heard.action.server_finished
    assert heard.action.whole(stop) is generated


def test_what_is_told_at_the_stop_has_its_versions_corrected() -> None:
    heard = Heard()
    end = CODEC.token_id(END)
    assert end is not None
    heard.take(1, 2, version="a.1")
    heard.take(3, end, version="a.2", finish=LENGTH, spans=(("a.1", 0, 3), ("a.2", 3, 4)))
    ((_, generated),) = heard.told
    assert isinstance(generated, Generated)
    assert generated.versions == ((V[1], 3), (V[2], 1))
    assert (generated.finish.kind, generated.cut) == (FinishKind.STOP, False)
    assert heard.action.server_finished


def test_marks_are_told_in_order_and_before_the_stop() -> None:
    heard = Heard()
    assert heard.said("a</call>b")
    assert not heard.said("<" + "/call>" + END, read_ns=7)
    assert [what for what, _ in heard.told] == ["mark", "mark", "action"]
    first, second = (told for what, told in heard.told if what == "mark")
    assert first == (CODEC.encode("a</call>"), StopHit(keep=2, matched_text="</call>"), 1)
    ids, hit, read_ns = second
    assert CODEC.decode(ids) == "a</call>b</call>"
    assert (hit.keep, read_ns) == (len(ids), 7)


def test_a_mark_goes_on_to_the_end_of_its_token() -> None:
    heard = Heard()
    heard.take(*CODEC.encode("x</cal"), *CODEC.encode("l>"), *CODEC.encode("yz"))
    ((what, told),) = heard.told
    assert what == "mark"
    ids, _, _ = told
    assert CODEC.decode(ids) == "x</call>"


def test_one_who_leaves_is_told_the_rest_and_nothing_after_the_action() -> None:
    heard = Heard()
    heard.take(1, 2, read_ns=2)
    assert heard.told == []
    heard.action.report_rest()
    heard.action.report_rest()
    ((what, part),) = heard.told
    assert (what, list(part.token_ids)) == ("progress", [1, 2])
    ended = Heard()
    ended.said(f"a{END}")
    ended.action.report_rest()
    assert [what for what, _ in ended.told] == ["action"]


def test_progress_is_told_whenever_the_action_has_lasted_twice_as_long_and_adds_up() -> None:
    heard, tick, told_at = Heard(), FIRST_PROGRESS_NS // 4, list[int]()
    for number in range(99):
        before = len(heard.told)
        heard.take(number, read_ns=1 + number * tick)
        told_at += [number * tick] * (len(heard.told) - before)
    parts = [told for what, told in heard.told if what == "progress"]
    first = FIRST_PROGRESS_NS
    assert told_at == [first, 2 * first, 4 * first, 8 * first, 16 * first]
    heard.take(99, read_ns=1 + told_at[-1] + LONGEST_PROGRESS_NS)
    assert heard.told[-1][0] == "progress"
    assert len(heard.told) == len(parts) + 1
    whole = heard.action.whole(LENGTH)
    joined = [token for part in parts for token in part.token_ids]
    assert joined == list(whole.token_ids[: len(joined)])
    assert len(joined) > 99 / 2
    assert all(part.versions == ((V[1], len(part.token_ids)),) for part in parts)


def test_an_action_goes_on_from_what_an_earlier_life_has() -> None:
    """It is part of the whole; its marks and its progress are not told again."""
    ids = CODEC.encode("a</call>b")
    before = Generated(
        token_ids=array("i", ids),
        logprobs=array("f", [-1.0] * len(ids)),
        versions=((V[0], len(ids)),),
        finish=FinishReason(kind=FinishKind.CONTINUED),
    )
    heard = Heard(received=before)
    heard.take(1, version="a.2", read_ns=2 * FIRST_PROGRESS_NS)
    heard.take(2, version="a.2", finish=LENGTH, spans=(("a.2", 0, 1), ("a.3", 1, 2)))
    whole = heard.action.whole(LENGTH)
    assert list(whole.token_ids) == [*ids, 1, 2]
    assert whole.versions == ((V[0], len(ids)), (V[2], 1), (V[3], 1))
    ((what, part),) = heard.told
    assert what == "progress"
    assert list(part.token_ids) == [1]
    assert list(before.token_ids) == ids


def test_a_stop_over_two_lives_is_found() -> None:
    spelled = list(END.encode())
    before = Generated(
        token_ids=array("i", spelled[:-3]),
        logprobs=array("f", [-1.0] * (len(spelled) - 3)),
        versions=((V[0], len(spelled) - 3),),
        finish=FinishReason(kind=FinishKind.CONTINUED),
    )
    heard = Heard(received=before)
    assert not heard.take(*spelled[-3:])
    ((what, generated),) = heard.told
    assert what == "action"
    assert list(generated.token_ids) == spelled


@pytest.mark.parametrize("version", ["default", "", "a", "a.7"])
def test_tokens_under_foreign_weights_are_not_taken(version: str) -> None:
    heard = Heard()
    heard.take(1)
    with pytest.raises(ServerUnreachable, match="restarted"):
        heard.take(2, version=version)
    assert list(heard.action.token_ids) == [1]
    heard.take(version=version)  # a chunk without tokens says nothing
    assert list(heard.action.token_ids) == [1]


def test_an_account_of_foreign_weights_is_not_believed() -> None:
    heard = Heard()
    heard.take(1, 2, finish=LENGTH, spans=(("default", 0, 1), ("a.2", 1, 2)))
    assert heard.action.whole(LENGTH).versions == ((V[1], 1), (V[2], 1))
