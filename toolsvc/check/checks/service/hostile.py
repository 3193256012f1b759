"""Actions with which a policy could break its own trajectory or its neighbours': they are answered
in bounded time.

An engine repeats a call that ended in an error of the service, or restarts its trajectory. A policy
that can cause such errors discards the outcomes that it does not like.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient, CheckSession
from toolsvc.check.connection import Refusal
from toolsvc.check.subject import Subject
from toolsvc.check.types import CheckFailed, Rule, expect
from toolwright import wire

ANSWER_SECONDS = 10.0
"""Time for a call that the service only parses, in seconds."""
LONG = 1 << 20
VALUES: Mapping[str, str] = {
    "3,000 unclosed brackets": "[" * 3000,
    "60 nested lists": "[" * 60 + "]" * 60,
    "a number of 400 digits": "9" * 400,
    "a number of 5,000 digits": "9" * 5000,
    "a number above all doubles": "1e999",
    "NaN": "NaN",
    "half a surrogate pair": r'"\ud83d"',
    "a name of half a pair": r'{"\udfff": 1}',
    "half an object": '{"a": ',
}
"""Values in JSON, or nearly in JSON. Other tools take them as text."""


@check(Rule.INPUT)
async def a_hostile_action_is_an_answer(client: CheckClient) -> None:
    """Unclosed brackets, numbers beyond a double and half surrogate pairs in an action are answered
    to the policy, not by an error of the service."""
    for subject in _one_of_each_format(client):
        session = await client.open(subject)
        for what, value in VALUES.items():
            await _answered(session, what, action=_written(subject, value))


@check(Rule.INPUT)
async def arguments_that_cannot_be_read_are_an_answer(client: CheckClient) -> None:
    """Unclosed brackets, numbers beyond a double and broken JSON in `arguments_json` are answered
    to the policy, not by an error of the service."""
    session = await client.open()
    for what, value in VALUES.items():
        given = {"arguments": wire.struct({}), "arguments_json": f'{{"a": {value}}}'}
        await _answered(session, what, action="", **given)


@check(Rule.INPUT)
async def a_long_hostile_action_keeps_nobody_waiting(client: CheckClient) -> None:
    """An action of 1 MiB of brackets is answered, and does not delay a call in another session."""
    for subject in _one_of_each_format(client):
        hostile, neighbour = await client.open(subject), await client.open(subject)
        await asyncio.gather(
            _answered(hostile, "1 MiB of brackets", action=_written(subject, "[" * LONG)),
            _answered(neighbour, "a call beside 1 MiB of brackets"),
        )
        await _answered(neighbour, "a call after 1 MiB of brackets elsewhere")


async def _answered(session: CheckSession, what: str, **fields: Any) -> None:
    """Raises CheckFailed unless the call has a result in time."""
    limit = session.client.seconds(ANSWER_SECONDS)
    try:
        async with asyncio.timeout(limit):
            result = await session.call(**fields)
    except Refusal as refusal:
        raise CheckFailed(f"{what} was answered by {refusal}: {refusal.message[:200]}") from refusal
    except TimeoutError:
        raise CheckFailed(f"{what} had no answer after {limit:g} s") from None
    expect(result.valid or result.invalid_reason, f"{what} was called invalid without a reason")


def _one_of_each_format(client: CheckClient) -> list[Subject]:
    found: dict[str | None, Subject] = {}
    for subject in client.subjects:
        found.setdefault(subject.descriptor.action_format.WhichOneof("format"), subject)
    return list(found.values())


def _written(subject: Subject, value: str) -> str:
    """The value as an action. No JSON library writes such values."""
    form = subject.descriptor.action_format
    if not form.HasField("json_call"):
        return subject.written(value)
    name = next(iter(sorted(subject.arguments)), "a")
    call = f'{{"name": "{subject.name}", "arguments": {{"{name}": {value}}}}}'
    return f"{form.json_call.open}{call}{form.json_call.close}"
