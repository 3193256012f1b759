"""The runs of a study: `toolwright run` for each seed, one after the other.

A finished run is not made again, and an interrupted one goes on where it ended.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.errors import BenchError
from console.report.writing import SUMMARY
from toolwright.process.packaged import packaged


def trained(
    recipe: str, seeds: Iterable[int], home: Path, settings: Sequence[str]
) -> dict[int, Path]:
    """Run folders by seed, below `home`. recipe: its path below recipes/. settings: overrides,
    TABLE.KEY=VALUE. Raises BenchError if a run fails, with its exit status."""
    folders = {seed: home / f"seed-{seed}" for seed in seeds}
    for seed, folder in folders.items():
        if (folder / SUMMARY).exists():
            continue
        words = [word for setting in settings for word in ("--set", setting)]
        argv = ["run", str(packaged("recipes") / recipe), "--seed", str(seed), *words]
        status = subprocess.run(
            [sys.executable, "-m", "console.cli", *argv, "--folder", str(folder)], check=False
        ).returncode
        if status:
            raise BenchError(
                f"the run in {folder} ended with status {status}: its last lines name the fault, "
                "and the same command goes on with it"
            )
    return folders
