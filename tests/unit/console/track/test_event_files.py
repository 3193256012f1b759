"""Names of TensorBoard's files: it reads them in order, and never goes back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from console.track.to_tensorboard import _EventFile

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("ahead", [-3600, 0, 3600])
def test_a_new_file_comes_after_those_of_an_earlier_start(tmp_path: Path, ahead: int) -> None:
    """ahead: seconds by which the clock of the earlier start was ahead of ours."""
    now = int(time.time())
    (tmp_path / f"events.out.tfevents.{now + ahead:010d}.host.99999.0").write_bytes(b"")
    for _ in range(3):
        _EventFile(tmp_path).close()
        names = sorted(path.name for path in tmp_path.iterdir())
        newest = max(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        assert names[-1] == newest.name
    assert len(names) == 4
