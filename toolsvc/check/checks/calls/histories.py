"""Random histories of calls and sessions come to what a model of the contract says."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from functools import partial

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient
from toolsvc.check.model.generator import history
from toolsvc.check.model.player import Broken, play
from toolsvc.check.model.shrinking import shortened
from toolsvc.check.model.steps import Step, pieces_of
from toolsvc.check.probe import Kind
from toolsvc.check.subject import Subject
from toolsvc.check.types import CheckFailed, Rule

MOST_TOOLS = 3
HISTORIES = 40
AT_ONCE = 4
SECONDS = 5.0
"""After which none is begun any more, on a service that takes its time."""
SHRINK_SECONDS = 10.0


@check(Rule.HISTORY, timed=True)
async def histories_are_as_the_contract_says(client: CheckClient) -> None:
    """Whatever is opened, called, repeated, changed, cancelled, renewed, forked and closed, in
    whatever order, in several sessions of several owners, comes to what the contract says."""
    until = time.monotonic() + client.seconds(SECONDS)
    seeds = iter(range(HISTORIES))

    async def one_after_another() -> None:
        for seed in seeds:
            if time.monotonic() > until:
                return
            subjects = _chosen(client, seed)
            try:
                await play(client, subjects, partial(history, seed))
            except Broken as broken:
                raise await _found(client, subjects, broken, seed) from broken

    try:
        async with asyncio.TaskGroup() as players:
            for _ in range(AT_ONCE):
                players.create_task(one_after_another())
    except* CheckFailed as found:
        raise found.exceptions[0] from None


def _chosen(client: CheckClient, seed: int) -> Sequence[Subject]:
    """The tools of a history's sessions: one whose effects can be seen, and perhaps others."""
    draw = random.Random(seed)
    seen = [one for one in client.subjects if {Kind.EFFECT, Kind.READ} <= {*one.probe.kinds}]
    first = draw.choice(seen or client.subjects)
    others = [subject for subject in client.subjects if subject is not first]
    more = min(len(others), draw.choice((0, 0, 1, MOST_TOOLS - 1)))
    return [first, *draw.sample(others, more)]


async def _found(
    client: CheckClient, subjects: Sequence[Subject], broken: Broken, seed: int
) -> CheckFailed:
    """The shortest history of its kind, in words."""
    until = time.monotonic() + client.seconds(SHRINK_SECONDS)

    async def still(steps: Sequence[Step]) -> Sequence[Step] | None:
        nonlocal broken
        if time.monotonic() > until:
            return None
        try:
            await play(client, subjects, lambda _: steps)
        except Broken as again:
            broken = again
            return again.steps
        return None

    await shortened(broken.steps, still, pieces_of)
    told = "; ".join(map(str, broken.steps))
    return CheckFailed(f"history {seed}: {told}: {broken.seen}")
