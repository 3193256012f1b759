"""The same in containers of Debian's podman and runc: a fix is paid, and a cheat is not."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.integration.verltool_swe.conftest import folders_of, played
from tests.support.containers.podman import IMAGE, Podman
from tests.support.swe import serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0,
        reason="podman of an ordinary user bounds no memory without delegated control groups",
    ),
]


async def test_agents_in_containers(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    podman = Podman(tmp_path)
    try:
        for name, value in podman.environment.items():
            monkeypatch.setenv(name, value)
        async with serving(folders_of(world), runner="podman", image=IMAGE) as host:
            mended, cheated = await asyncio.gather(
                played(host, "rent", "solving"),
                played(host, "links", "cheating", "prints a log of passed tests"),
            )
        assert (mended.reward, cheated.reward) == (1.0, 0.0)
    finally:
        podman.end()
