"""Turns are counted per conversation, and a resumed reply goes on where it broke off."""

from __future__ import annotations

from bench.scripted.conversation import Conversations
from bench.scripted.types import GenerateRequest, Token


def request(ids: list[int], conversation: str = "c", rid: str = "r") -> GenerateRequest:
    return GenerateRequest(
        rid=rid,
        input_ids=tuple(ids),
        stream=True,
        return_logprob=True,
        return_prompt_token_ids=False,
        max_new_tokens=10,
        stop_token_ids=frozenset(),
        ignore_eos=False,
        stream_interval=1,
        conversation=conversation,
        params={},
    )


def said(*ids: int) -> list[Token]:
    return [Token(token_id, -1.0) for token_id in ids]


def test_a_turn_ends_when_it_is_closed() -> None:
    conversations = Conversations()
    first = request([1, 2])
    assert conversations.open(first).script_request.turn == 0
    conversations.close(first, said(5, 6))
    opening = conversations.open(request([1, 2, 5, 6, 9]))
    assert opening.script_request.turn == 1
    assert opening.cached_tokens == 4
    assert conversations.open(request([1, 2], "other")).script_request.turn == 0


def test_an_unfinished_reply_is_continued() -> None:
    conversations = Conversations()
    conversations.open(request([1, 2], rid="a"))
    conversations.attach("c", said(5, 6, 7))
    opening = conversations.open(request([1, 2, 5, 6], rid="b"))
    assert (opening.skip, opening.script_request.rid) == (2, "a")
    conversations.attach("c", said(7, 8))
    opening = conversations.open(request([1, 2, 5, 6, 7, 8], rid="d"))
    assert (opening.skip, opening.script_request.input_ids) == (4, (1, 2))


def test_a_reply_that_ended_at_its_length_is_continued_in_its_turn() -> None:
    conversations = Conversations()
    first = request([1, 2])
    conversations.open(first)
    conversations.close(first, said(5, 6), cut=True)
    opening = conversations.open(request([1, 2, 5, 6]))
    assert (opening.skip, opening.script_request.turn) == (2, 0)
    conversations.close(request([1, 2, 5, 6]), said(7), cut=True)
    opening = conversations.open(request([1, 2, 5, 6, 7]))  # again, from further on
    assert (opening.skip, opening.script_request.turn) == (3, 0)
    conversations.close(request([1, 2, 5, 6, 7]), said(8))
    assert conversations.open(request([1, 2, 5, 6, 7, 8])).script_request.turn == 1


def test_a_reply_that_ended_at_its_length_may_be_the_last_of_its_turn() -> None:
    conversations = Conversations()
    conversations.open(request([1, 2]))
    conversations.close(request([1, 2]), said(5, 6), cut=True)
    opening = conversations.open(request([1, 2, 5, 6, 9]))
    assert (opening.skip, opening.script_request.turn) == (0, 1)
    conversations.close(request([1, 2, 5, 6, 9]), said(7))
    opening = conversations.open(request([1, 2, 5, 6]))  # too late
    assert (opening.skip, opening.script_request.turn) == (0, 2)


def test_the_same_prompt_again_starts_the_reply_again() -> None:
    conversations = Conversations()
    conversations.open(request([1, 2]))
    conversations.attach("c", said(5, 6))
    opening = conversations.open(request([1, 2]))
    assert (opening.skip, opening.script_request.turn) == (0, 0)


def test_other_ids_are_another_attempt_at_the_turn() -> None:
    conversations = Conversations()
    conversations.open(request([1, 2]))
    conversations.attach("c", said(5, 6))
    opening = conversations.open(request([1, 2, 7], rid="b"))
    assert (opening.skip, opening.script_request.rid) == (0, "b")


def test_a_flush_forgets_the_cache_and_keeps_the_turn() -> None:
    conversations = Conversations()
    first = request([1, 2])
    conversations.open(first)
    conversations.close(first, said(5))
    conversations.forget_cache()
    opening = conversations.open(request([1, 2, 5]))
    assert (opening.cached_tokens, opening.script_request.turn) == (0, 1)


def test_old_conversations_go_first() -> None:
    conversations = Conversations(limit=2)
    for name in "aba":
        conversations.open(request([1], name))
    conversations.open(request([1], "c"))
    assert len(conversations) == 2
    first = request([1], "a")
    conversations.close(first, said(2))
    assert conversations.open(first).script_request.turn == 1
