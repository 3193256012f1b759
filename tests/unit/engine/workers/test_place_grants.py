"""The places of a group whose worker died."""

from __future__ import annotations

import asyncio

import pytest

from engine.core.trajectory.events import Ended
from engine.serving.admission.places import Places
from engine.serving.crew.place_grants import PlaceGrants
from engine.serving.journal.logs import OpenLog
from tests.support.waiting import until
from toolwright.types import StopReason

pytestmark = pytest.mark.quick


async def test_members_that_ended_give_their_places_to_other_groups() -> None:
    places = Places(4)
    grants, others = PlaceGrants(places), PlaceGrants(places)
    grants.want(grants.requested(4, {}))
    others.want(2)
    await until(lambda: grants.held == 4, "all places")
    over = OpenLog(attempt="a", events=[Ended(reason=StopReason.MAX_TURNS)])
    logs = {"g-0": over, "g-1": OpenLog(attempt="b", events=[])}
    assert grants.requested(4, logs) == 3
    await until(lambda: others.held == 1, "the freed place")
    await asyncio.sleep(0)
    assert (grants.held, others.held) == (3, 1)
    grants.free(2)
    await until(lambda: others.held == 2, "its second place")
    assert grants.requested(4, logs) == 1
    for one in (grants, others):
        await one.close()
    assert places.used == 0
