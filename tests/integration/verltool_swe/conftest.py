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
PATIENCE_S = 200
"""Time of a call. A busy machine may give a whole jail no CPU for a minute, though all that is in
it could run; the recipe's own time is 60 s."""
PROBLEMS = {one.name: one for one in PART("world/problems.problems")()}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the recipe makes it, but with `PATIENCE_S` for the tests, and `pages-impatient`, whose
    tests have 3 s."""
    folder: Path = tmp_path_factory.mktemp("world")
    PART("world/build.write_world")(folder, PROBLEMS.values())
    told = folder / "verifications/pages/verification.toml"
    impatient = with_seconds(told, 3)
    for file in folder.glob("verifications/*/verification.toml"):
        file.write_text(with_seconds(file, PATIENCE_S), encoding="utf-8")
    (folder / "verifications/pages-impatient").mkdir()
    (folder / "verifications/pages-impatient/files").symlink_to(told.parent / "files")
    (folder / "verifications/pages-impatient/verification.toml").write_text(
        impatient, encoding="utf-8"
    )
    return folder


def with_seconds(file: Path, seconds: int) -> str:
    told = file.read_text(encoding="utf-8")
    assert "seconds = 60" in told
    return told.replace("seconds = 60", f"seconds = {seconds}")


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
        acting = asyncio.ensure_future(session.act(message, run_limit=PATIENCE_S))
        if not (await asyncio.wait((acting,), timeout=SLOW_S))[0]:
            print(f"{name} {part} {cheat}: a call takes long\n{process_states()}")
        result = await acting
        assert result.error is None, said(result)
    assert result.done
    return result
