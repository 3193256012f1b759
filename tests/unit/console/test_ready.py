"""Probes: what answers, and what is given up."""

from __future__ import annotations

import pytest

from console.errors import NotReady
from console.machine import ready


async def test_an_engine_that_went_away_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ready, "AWAY_S", 0.3)
    (port,) = ready.free_ports(1)
    with pytest.raises(NotReady, match=r"has not answered for .* start it again"):
        await ready.evaluated(f"127.0.0.1:{port}")
