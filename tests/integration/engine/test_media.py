"""A task's images reach the tools that want them: from the row to the session, each sent once."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest

from tests.integration.engine.conftest import MakeWorld
from tests.integration.toolsvc.conftest import start_service
from tests.support.dialogue import ANSWER, by_turn

pytestmark = pytest.mark.quick

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
"""One opaque pixel: what is transparent would be written anew."""
FILE = """
import hashlib

from toolsvc import Tool


class Look(Tool):
    name = "look"
    media = True

    def open(self, session):
        return list(session.blobs.values())

    def call(self, state, call):
        return " ".join(
            f"{one.media_type}:{hashlib.sha256(one.data).hexdigest()[:8]}" for one in state
        )
"""


async def test_images_of_rows_are_blobs_of_sessions(world: MakeWorld, tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text(FILE, encoding="utf-8")
    # More than one piece, and not the same as the small one.
    large = PNG + bytes(3 << 20)
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "b.png").write_bytes(large)
    row = {"id": "q", "prompt": "what is 0+1?", "images": ["b.png", "a.png"]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    here = await world(
        run={"steps": 1, "groups_per_step": 1, "group_size": 2}, task={"source": "rows.jsonl"}
    )
    here.sampler._script = by_turn(here.codec, ["<look> </look>", ANSWER])
    service = start_service(tmp_path / "look.log", str(tmp_path / "look.py"))
    try:
        here.tables["tools"]["look"] = {"service": service.address}
        async with here.engine() as run:
            (group,) = await run.learner.lease(await run.learner.version())
    finally:
        service.process.terminate()
        service.process.wait(30)
    hashes = [hashlib.sha256(data).hexdigest() for data in (large, PNG)]
    for trajectory in group.members:
        (call,) = trajectory.calls
        assert call.outcome.observation == " ".join(f"image/png:{one[:8]}" for one in hashes)
        assert [ref.blob.sha256 for ref in trajectory.task.media] == hashes
        assert [ref.blob.size for ref in trajectory.task.media] == [len(large), len(PNG)]
    assert not any(request.blobs for request in here.tools.opened)  # its tools take no media
