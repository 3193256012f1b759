"""Probes: what answers, and what is given up."""

from __future__ import annotations

import pytest

from console.course import course
from console.errors import NotReady
from console.machine.ready import free_ports


async def test_an_engine_that_went_away_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(course, "AWAY_S", 0.3)
    (port,) = free_ports(1)
    with pytest.raises(NotReady, match=r"has not answered for .* start it again"):
        await course.until_evaluated(f"127.0.0.1:{port}")
