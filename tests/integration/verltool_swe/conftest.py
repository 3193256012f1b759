"""The demonstration's repositories, and its agents as callers of the tool."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.process_states import process_states
from tests.support.recipes import part_of
from tests.support.trajectory import Trajectory, said
from toolsvc.host.host import Host
from toolsvc.types import Result

PART = part_of(Path(__file__).resolve().parents[3] / "recipes/verltool/swe")
SLOW_S = 30.0
"""Time of a call after which the processes are written to the output, which a failure shows."""
PROBLEMS = {one.name: one for one in PART("world/problems.problems")()}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the recipe makes it, and `NAME-impatient`, whose tests have 3 s."""
    folder: Path = tmp_path_factory.mktemp("world")
    PART("world/build.write_world")(folder, PROBLEMS.values())
    told = folder / "verifications/pages/verification.toml"
    impatient = told.read_text(encoding="utf-8").replace("seconds = 60", "seconds = 3")
    assert impatient != told.read_text(encoding="utf-8")
    (folder / "verifications/pages-impatient").mkdir()
    (folder / "verifications/pages-impatient/files").symlink_to(told.parent / "files")
    (folder / "verifications/pages-impatient/verification.toml").write_text(
        impatient, encoding="utf-8"
    )
    return folder


def folders_of(world: Path) -> Any:
    """What `serving` asks of."""
    return SimpleNamespace(
        repositories=world / "repositories", verifications=world / "verifications"
    )


async def played(host: Host, name: str, part: str, cheat: str = "", judged: str = "") -> Result:
    """The last result of an agent that says all that it has to say."""
    task = {"repository": f"{name}.tar", "verification": judged or name}
    session = Trajectory(host, "swe", task)
    for message in PART("world/parts.messages")(part, cheat, PROBLEMS[name]):
        acting = asyncio.ensure_future(session.act(message, run_limit=60.0))
        if not (await asyncio.wait((acting,), timeout=SLOW_S))[0]:
            print(f"{name} {part} {cheat}: a call takes long\n{process_states()}")
        result = await acting
        assert result.error is None, said(result)
    assert result.done
    return result
