"""Training and evaluation sets of the paper, from files that you bring.

    tasks list --match swe        # which columns they have

Each task's metadata name its container's image, and its verification below swe.verifications.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tasks.sources import endless, once
from toolwright.types import Task

HERE = Path(__file__).parent
TRAINING = HERE / "r2e_gym_lite"
"""A folder of R2E-Gym-Lite's parquet files."""
HELDOUT = HERE / "swe_bench_verified.parquet"


def training(seed: int) -> Iterator[Task]:
    """R2E-Gym-Lite, without end."""
    return endless("r2e_gym_lite", TRAINING, seed)


def heldout(seed: int) -> Iterator[Task]:
    """SWE-bench Verified, in its own order."""
    return once("swe_bench_verified", HELDOUT)
