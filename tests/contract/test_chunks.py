"""Every kind of event that the scripted sampler can send is what SGLang's own schema says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from bench.scripted.scheduling.generation import Generation
from bench.scripted.types import Token
from bench.scripted.wire import stream_error_body
from tests.contract import schema
from tests.support.scripted_replies import reply

pytestmark = pytest.mark.quick

REPLY = [Token(5, -0.5), Token(6, -0.25), Token(260, -0.125), Token(7, -1.0)]


def generation(**changes: Any) -> Generation:
    return reply(
        **{
            "source": REPLY,
            "input_ids": (1, 2, 3),
            "max_new_tokens": 16,
            "stop_token_ids": frozenset({260}),
            "cached_tokens": 2,
            **changes,
        }
    )


def events(reply: Generation, *, incremental: bool) -> list[dict[str, Any]]:
    """One event per token, to the end."""
    taken = []
    while True:
        if reply.finish is None:
            reply.grow(1, "v1")
        done = reply.finish is not None
        raw = reply.take(incremental=incremental, weight_version="v1", now=1.5, wall=9.0)
        taken.append(orjson.loads(raw.removeprefix(b"data: ")))
        if done:
            return taken


def aborted() -> Generation:
    reply = generation()
    reply.grow(1, "v1")
    reply.abort("v1")
    return reply


def aborted_in_queue() -> Generation:
    reply = generation()
    reply.grow(2, "v1")
    reply.take(incremental=True, weight_version="v1", now=1.0, wall=9.0)
    reply.abort_in_queue()
    return reply


KINDS: dict[str, Callable[[], Generation]] = {
    "stopped": generation,
    "limited": lambda: generation(max_new_tokens=2),
    "empty": lambda: generation(max_new_tokens=0),
    "aborted": aborted,
    "aborted in the queue": aborted_in_queue,
    "with its prompt": lambda: generation(return_prompt_token_ids=True),
    "with top log-probs": lambda: generation(top_logprobs=3),
    "without log-probs": lambda: generation(return_logprob=False),
}


@pytest.mark.parametrize("incremental", [True, False], ids=["delta", "cumulative"])
@pytest.mark.parametrize("kind", KINDS)
def test_events_are_sglangs_own(kind: str, incremental: bool) -> None:
    for event in events(KINDS[kind](), incremental=incremental):
        decoded = schema.check_answer(event)
        assert decoded.output_ids == event["output_ids"]


@pytest.mark.parametrize("kind", ["stopped", "limited", "aborted"])
def test_plain_answers_are_sglangs_own(kind: str) -> None:
    reply = KINDS[kind]()
    while reply.finish is None:
        reply.grow(1, "v1")
    whole = orjson.loads(orjson.dumps(reply.whole(weight_version="v1", now=1.0, wall=9.0)))
    schema.check_answer(whole)


def test_error_events_are_sglangs_own() -> None:
    schema.check_error_event(stream_error_body("temperature must be at least 0"))


def test_meta_info_has_the_types_the_schema_demands() -> None:
    """The judge is strict: a wrong type in a chunk does not pass unseen."""
    event = events(generation(), incremental=True)[0]
    event["meta_info"]["prompt_tokens"] = "3"
    with pytest.raises(schema.load().JsonContractError):
        schema.check_answer(event)
